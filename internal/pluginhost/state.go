package pluginhost

import (
	"fmt"
	"time"
)

// A State is what becomes of calls to a plugin. It moves like this:
//
//	starting ─▶ ready ◀─▶ degraded
//	              ▲          │
//	              └─ restarting ◀─ ready, degraded
//	any ─▶ stopped
//
// A plugin is starting until [Start] returns, and nobody sees it. A missed
// probe makes it degraded, and an answered one ready; [maxMissed] in a row, the
// end of the process or that of its session make it restarting, and the next
// process that has taken everything over makes it ready. Close makes it
// stopped.
type State string

const (
	// Ready plugins answer.
	Ready State = "ready"
	// Degraded ones have not answered the last probe. They are called as ever.
	Degraded State = "degraded"
	// Restarting ones have no process. Calls wait for the next one as long as
	// they may; see [Plugin.Decide] for when they do not.
	Restarting State = "restarting"
	// Stopped ones are closed.
	Stopped State = "stopped"
)

// breakAfter is how often in a row a process may not come to serve, and
// breakBefore how far off the next try may be, until questions are not held any
// more.
const (
	breakAfter  = 5
	breakBefore = time.Second
)

// State returns the state of the plugin.
func (p *Plugin) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ctx.Err() != nil:
		return Stopped
	case p.process == nil:
		return Restarting
	case p.missed:
		return Degraded
	}
	return Ready
}

// probed notes whether the process has answered the last probe.
func (p *Plugin) probed(answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missed = !answered
}

// triesAt notes when the next process is tried. The last one may not have come
// to serve.
func (p *Plugin) triesAt(next time.Time, served bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextTry = next
	if !served {
		p.failures++
	}
}

// open returns an error while the breaker is open: no process serves, and none
// is likely to serve soon.
func (p *Plugin) open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != nil {
		return nil
	}
	wait := time.Until(p.nextTry)
	if p.failures < breakAfter && wait < breakBefore {
		return nil
	}
	return fmt.Errorf("the plugin %s cannot be restarted; the next try is in %s", p.spec.Name, max(wait, 0).Round(time.Millisecond))
}

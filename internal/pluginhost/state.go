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

// An outage lasts from when a process is lost until the next one serves.
type outage struct {
	over    chan struct{} // closed when the next one serves
	broken  chan struct{} // closed when the breaker opens
	nextTry time.Time     // guarded by the mutex of the plugin
}

func newOutage() *outage {
	return &outage{over: make(chan struct{}), broken: make(chan struct{})}
}

// breakAfter is how often in a row a process may not come to serve, and
// breakBefore how far off the next try may be, until the breaker opens:
// questions are not held any more, until a process serves.
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

// triesIn notes when the next process is tried, after some that did not come to
// serve.
func (p *Plugin) triesIn(pause time.Duration, failures int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outage.nextTry = time.Now().Add(pause)
	if failures < breakAfter && pause < breakBefore || p.outage.isBroken() {
		return
	}
	close(p.outage.broken)
}

// isBroken reports whether the breaker is open.
func (o *outage) isBroken() bool {
	select {
	case <-o.broken:
		return true
	default:
		return false
	}
}

// Returns reports whether the plugin does not answer but is expected to, soon:
// it has missed a probe or is being restarted, and the breaker is closed.
func (p *Plugin) Returns() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.outage != nil {
		return p.ctx.Err() == nil && !p.outage.isBroken()
	}
	return p.missed
}

// brokenError is the error of questions while the breaker is open.
func (p *Plugin) brokenError(o *outage) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := max(time.Until(o.nextTry), 0).Round(time.Millisecond)
	return fmt.Errorf("the plugin %s cannot be restarted; the next try is in %s", p.spec.Name, wait)
}

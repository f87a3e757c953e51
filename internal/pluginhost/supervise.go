package pluginhost

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/sdk/host"
)

// supervise watches the processes of the plugin, one after the other, until
// ctx ends.
func (p *Plugin) supervise(ctx context.Context, current *process) {
	backoff := p.timing.backoffMin
	for {
		born := time.Now()
		hangs, next := p.watch(ctx, current)
		if next != nil {
			if renewed := p.takeOver(ctx, *next, current); renewed != nil {
				current = renewed
				continue
			}
			if current = p.restart(ctx, &backoff); current == nil {
				return
			}
			p.serve(current)
			continue
		}
		died := time.Now()
		p.lose(current)
		pid, how := current.pid(), p.bury(current, ctx.Err() != nil && !hangs)
		if ctx.Err() != nil {
			p.log.Info("plugin stopped", zap.Int("pid", pid))
			return
		}
		if hangs {
			how = fmt.Sprintf("it did not answer %d times in a row and was killed", maxMissed)
		}
		p.log.Error("plugin died", zap.Int("pid", pid), zap.String("how", how))
		if died.Sub(born) > p.timing.healthyAfter {
			backoff = p.timing.backoffMin
		}
		if current = p.restart(ctx, &backoff); current == nil {
			return
		}
		p.log.Warn("plugin restarted", zap.Int("pid", current.pid()), zap.Duration("outage", time.Since(died)))
		p.countRestart()
		p.serve(current)
	}
}

// watch returns when the process has ended, hangs, or is to be renewed, or ctx
// has ended.
func (p *Plugin) watch(ctx context.Context, current *process) (hangs bool, next *renewal) {
	ticker := time.NewTicker(p.timing.probeEvery)
	defer ticker.Stop()
	missed := 0
	for {
		select {
		case <-ctx.Done():
			return missed > 0, nil
		case r := <-p.renewals:
			return false, &r
		case <-current.runner.exited:
			return false, nil
		case <-current.Ended(): // and with it the process, in a moment or by us
			return false, nil
		case <-ticker.C:
		case <-p.suspicions:
			missed = max(missed, 1) // a call is as good as a probe
		}
		if p.spec.Patient {
			continue
		}
		err := p.probe(ctx, current)
		p.probed(err == nil)
		switch {
		case ctx.Err() != nil: // Close: the answer may have been on its way
		case err == nil:
			missed = 0
		case current.runner.hasExited(0):
			return false, nil
		default:
			if missed++; missed == maxMissed {
				return true, nil
			}
		}
	}
}

// probe asks a process whether it lives.
func (p *Plugin) probe(ctx context.Context, current *process) error {
	ctx, cancel := context.WithTimeout(ctx, p.timing.probeTimeout)
	defer cancel()
	return current.Ping(ctx)
}

// bury ends a process that was taken out of service, gently if asked to, and
// returns how it ended. When it returns, all answers of the process are noted.
func (p *Plugin) bury(dead *process, gently bool) (how string) {
	var patience time.Duration
	if gently {
		patience = p.timing.killAfter
	} else {
		_ = dead.runner.kill() // before it is told to end: it would reject who waits
		dead.runner.hasExited(endNotice)
	}
	if !dead.end(patience) {
		p.log.Error("plugin cannot be killed", zap.Int("pid", dead.pid()))
		return "it cannot be killed"
	}
	dead.calls.Wait() // its connection is closed
	return dead.runner.exitWord()
}

// restart returns a new process that has taken over, or nil if ctx ended.
func (p *Plugin) restart(ctx context.Context, backoff *time.Duration) *process {
	for failures := 0; ; failures++ {
		pause := *backoff/2 + rand.N(*backoff)
		*backoff = min(*backoff*2, p.timing.backoffMax)
		p.triesIn(pause, failures)
		select {
		case <-ctx.Done():
			return nil
		case r := <-p.renewals: // what the operator has built since
			p.adopt(r.next)
			err := p.setUp(ctx, r.next)
			r.done <- err
			if err == nil {
				return r.next
			}
			r.next.end(0)
			continue
		case <-time.After(pause):
		}
		next, err := startProcess(ctx, p.presentSpec(), p.log)
		if err == nil {
			if err = p.setUp(ctx, next); err == nil {
				return next
			}
			next.end(0)
		}
		if ctx.Err() == nil {
			p.log.Error("restart plugin", zap.Error(err), zap.Duration("next_try_in", *backoff))
		}
	}
}

// setUp gives a new process the catalogs, the instances and the tickets of the
// one before it. Nobody else talks to it yet.
func (p *Plugin) setUp(ctx context.Context, next *process) error {
	ctx, cancel := context.WithTimeout(ctx, p.timing.setUpTimeout)
	defer cancel()
	t := p.estate()
	for _, c := range t.catalogs {
		if err := next.SyncCatalog(ctx, c); err != nil {
			return fmt.Errorf("send catalog again: %w", err)
		}
	}
	for _, in := range t.instances {
		kinds, err := next.Configure(ctx, in.name, in.policy, in.config)
		if err != nil {
			return fmt.Errorf("configure policy %s again: %w", in.policy, err)
		}
		if !kinds.Restorer {
			continue
		}
		if err := next.Restore(ctx, in.name, in.running, in.waiting); err != nil {
			return fmt.Errorf("restore %d running and %d waiting requests: %w", len(in.running), len(in.waiting), err)
		}
	}
	return nil
}

// An estate is what a process leaves to the next one.
type estate struct {
	catalogs  map[string]*host.Catalog // by name
	instances []heir
}

// An heir is an instance with the tickets that it holds.
type heir struct {
	*instance
	running, waiting []host.Held
}

func (p *Plugin) estate() estate {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := estate{catalogs: make(map[string]*host.Catalog)}
	for name, c := range p.catalogs {
		e.catalogs[name] = c.Catalog
	}
	for _, in := range p.instances {
		h := heir{instance: in}
		h.running, h.waiting = p.ledger.held(in.name)
		e.instances = append(e.instances, h)
		for _, t := range slices.Concat(h.running, h.waiting) {
			e.catalogs[t.Catalog.Name] = t.Catalog // it was removed if only releases refer to it
		}
	}
	return e
}

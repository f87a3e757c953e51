package pluginhost

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/sdk/host"
)

// A journal holds what a plugin has to be told and has not acknowledged.
type journal struct {
	mu      sync.Mutex
	pending []journalEntry
	wake    chan struct{} // has room for one
	idle    chan struct{} // closed while nothing is pending
}

// A journalEntry is one of a release, a cancelled wait, or an observation.
type journalEntry struct {
	release   *host.Release
	cancel    *ledgerKey
	observe   *host.Observation
	observers []string

	done chan<- struct{} // closed when it is acknowledged, if not nil
}

func newJournal() *journal {
	j := &journal{wake: make(chan struct{}, 1), idle: make(chan struct{})}
	close(j.idle)
	return j
}

// post adds an entry. It does not block.
func (j *journal) post(e journalEntry) {
	j.mu.Lock()
	if len(j.pending) == 0 {
		j.idle = make(chan struct{})
	}
	j.pending = append(j.pending, e)
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// batch returns all that is pending. It stays pending until acked.
func (j *journal) batch() []journalEntry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.pending[:len(j.pending):len(j.pending)]
}

// ack drops the first n entries.
func (j *journal) ack(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.pending[:n] {
		if e.done != nil {
			close(e.done)
		}
	}
	j.pending = append([]journalEntry(nil), j.pending[n:]...)
	if len(j.pending) == 0 {
		close(j.idle)
	}
}

// drained waits until nothing is pending, or until ctx ends.
func (j *journal) drained(ctx context.Context) {
	j.mu.Lock()
	idle := j.idle
	j.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// journalTimeout is how long a plugin may take to acknowledge a batch.
const journalTimeout = 10 * time.Second

// keepJournal sends batches until the plugin is closed.
func (p *Plugin) keepJournal() {
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.journal.wake:
		}
		for batch := p.journal.batch(); len(batch) > 0; batch = p.journal.batch() {
			if !p.deliver(batch) {
				return
			}
			for _, e := range batch {
				if e.release != nil {
					p.ledger.forget(e.release.Instance, e.release.Ticket)
				}
			}
			p.journal.ack(len(batch))
		}
	}
}

// deliver tells the plugin about a batch, as often as it takes. It reports
// false if the plugin was closed meanwhile.
func (p *Plugin) deliver(batch []journalEntry) bool {
	for {
		ctx, cancel := context.WithTimeout(p.ctx, journalTimeout)
		err := p.call(ctx, func(process *process) error { return send(ctx, process, batch) })
		cancel()
		switch {
		case err == nil:
			return true
		case p.ctx.Err() != nil:
			return false
		case host.TimedOut(err):
			p.log.Warn("plugin does not take releases", zap.Int("pending", len(batch)), zap.Error(err))
		default: // it will never take them
			p.log.Error("plugin refuses releases", zap.Int("lost", len(batch)), zap.Error(err))
			return true
		}
	}
}

// send makes the calls that tell a process about a batch. It may be repeated.
// Observations come first, so that a candidate that is freed is judged by what
// it just did.
func send(ctx context.Context, process *process, batch []journalEntry) error {
	var releases []host.Release
	cancels := make(map[string][]host.Ticket)
	observations := make(map[string][]host.Observation)
	for _, e := range batch {
		switch {
		case e.release != nil:
			releases = append(releases, *e.release)
		case e.cancel != nil:
			cancels[e.cancel.instance] = append(cancels[e.cancel.instance], e.cancel.ticket)
		default:
			for _, instance := range e.observers {
				observations[instance] = append(observations[instance], *e.observe)
			}
		}
	}
	for instance, obs := range observations {
		if err := process.Observe(ctx, []string{instance}, obs); err != nil {
			return fmt.Errorf("observe: %w", err)
		}
	}
	if len(releases) > 0 {
		if err := process.Release(ctx, releases); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	for instance, tickets := range cancels {
		if err := process.Cancel(ctx, instance, tickets...); err != nil {
			return fmt.Errorf("cancel: %w", err)
		}
	}
	return nil
}

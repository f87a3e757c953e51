package pluginhost

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/sdk/host"
)

// maxTold is how many entries of the journal are told in one call.
const maxTold = 512

// keepJournal delivers what is posted until ctx ends.
func (p *Plugin) keepJournal(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.journal.wake:
		}
		b := p.journal.take()
		if b == nil {
			continue
		}
		p.deliver(ctx, b)
		if ctx.Err() != nil {
			return
		}
		close(b.acknowledged)
	}
}

// deliver tells the plugin about a batch, a part at a time: what has been
// acknowledged is not told again.
func (p *Plugin) deliver(ctx context.Context, b *batch) {
	for instance, observations := range b.observations {
		for part := range slices.Chunk(observations, maxTold) {
			p.tell(ctx, "observations", len(part), func(ctx context.Context, process *process) error {
				return process.Observe(ctx, []string{instance}, part)
			})
		}
	}
	for part := range slices.Chunk(b.releases, maxTold) {
		p.tell(ctx, "releases", len(part), func(ctx context.Context, process *process) error {
			err := process.Release(ctx, part)
			if final(err) {
				p.ledger.released(part)
			}
			return err
		})
	}
	for instance, tickets := range b.cancels {
		for part := range slices.Chunk(tickets, maxTold) {
			p.tell(ctx, "cancels", len(part), func(ctx context.Context, process *process) error {
				return process.Cancel(ctx, instance, part...)
			})
		}
	}
}

// tell makes a call until the plugin has acknowledged or refused it, or until
// ctx ends.
func (p *Plugin) tell(ctx context.Context, what string, n int, f func(context.Context, *process) error) {
	for ctx.Err() == nil {
		callCtx, cancel := context.WithTimeout(ctx, p.timing.tellTimeout)
		err := p.call(callCtx, func(process *process) error { return f(callCtx, process) })
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case final(err):
			p.log.Error("plugin refuses to be told", zap.String("what", what), zap.Int("lost", n), zap.Error(err))
			return
		}
		p.log.Warn("plugin cannot be told", zap.String("what", what), zap.Int("pending", n), zap.Error(err))
		select {
		case <-time.After(p.timing.tellAgain):
		case <-ctx.Done():
		}
	}
}

// final reports whether the answer to a call that may be repeated would be the
// same again.
func final(err error) bool { return !host.TimedOut(err) && !unanswered(err) }

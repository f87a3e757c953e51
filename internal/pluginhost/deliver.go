package pluginhost

import (
	"context"
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
	for b.Len() > 0 && ctx.Err() == nil {
		p.tell(ctx, b.part(maxTold))
	}
}

// tell tells the plugin about r until it has acknowledged or refused all of it,
// or until ctx ends.
func (p *Plugin) tell(ctx context.Context, r *host.Report) {
	for ctx.Err() == nil {
		callCtx, cancel := context.WithTimeout(ctx, p.timing.tellTimeout)
		err := p.call(callCtx, func(process *process) error {
			releases := r.Releases
			err := process.Report(callCtx, r)
			if len(r.Releases) == 0 {
				p.ledger.released(releases)
			}
			return err
		})
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case final(err):
			p.log.Error("plugin refuses to be told what happened", zap.Error(err))
			return
		}
		p.log.Warn("plugin cannot be told what happened", zap.Int("observations", len(r.Observations)),
			zap.Int("releases", len(r.Releases)), zap.Int("cancels", len(r.Cancels)), zap.Error(err))
		select {
		case <-time.After(p.timing.tellAgain):
		case <-ctx.Done():
		}
	}
}

// final reports whether the answer to a call that may be repeated would be the
// same again.
func final(err error) bool { return !host.TimedOut(err) && !unanswered(err) }

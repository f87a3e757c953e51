package pluginhost

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
)

// StartInline returns a plugin whose policies live in this process. It is used
// like any other, and nothing of it is started again: what kills it kills the
// host. A policy that does not return from a call holds up the request.
func StartInline(ctx context.Context, spec Spec, log *zap.Logger, definitions ...sdk.Definition) (*Plugin, error) {
	life, end := context.WithCancel(context.Background())
	client := host.Inline(life, spec.Name, definitions...)
	info, err := client.Info(ctx, spec.HostVersion)
	if err != nil {
		end()
		return nil, fmt.Errorf("start plugin %s: %w", spec.Name, err)
	}
	process := &process{Client: client, info: info}
	p := newPlugin(spec, log, defaultTiming, process)
	log.Info("plugin started", zap.Int("pid", p.PID()), zap.Bool("inline", true), zap.String("version", info.Version))
	p.wg.Go(func() {
		<-p.ctx.Done()
		p.lose(process)
		end()
		ctx, cancel := context.WithTimeout(context.Background(), p.timing.killAfter)
		defer cancel()
		if err := client.Drain(ctx, ""); err != nil {
			log.Error("drain", zap.Error(err))
		}
		log.Info("plugin stopped", zap.Bool("inline", true))
	})
	p.wg.Go(func() { p.keepJournal(p.ctx) })
	return p, nil
}

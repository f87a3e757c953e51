package fifo

import (
	"context"
	"errors"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/memory"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// A Plugin holds the leases and queues of all instances of the policy, so that
// they survive a reload of the configuration.
type Plugin struct {
	memory    *memory.Store
	databases databases
}

// New returns a plugin under whose leases nothing runs.
func New() *Plugin { return &Plugin{memory: memory.New()} }

// Definition describes the policy, under the name "fifo".
func (p *Plugin) Definition() sdk.Definition {
	return sdk.Define("fifo", DefaultConfig(), p.build)
}

func (p *Plugin) build(ctx context.Context, config Config) (sdk.Policies, error) {
	a := &admitter{store: p.memory, rules: config.rules()}
	leave := func(context.Context) error { return nil }
	if config.Store == storePostgres {
		s, leaves, err := p.databases.open(database{config.DSN, config.Schema}, config.OnStoreError)
		if err != nil {
			return sdk.Policies{}, err
		}
		a.store, leave = s, leaves
	}
	var err error
	if a.meter, err = newMeter(a.status); err != nil {
		return sdk.Policies{}, errors.Join(err, leave(ctx))
	}
	end := func(ctx context.Context) error { return errors.Join(a.meter.close(), leave(ctx)) }
	return sdk.Policies{Admission: a, Close: end}, nil
}

// An admitter is one instance: a store and the rules for its requests.
type admitter struct {
	store Store
	rules Rules
	meter *meter
}

var _ policy.Restorer = (*admitter)(nil)

func (a *admitter) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	lease, err := a.store.Admit(ctx, req, a.rulesFor(req.Request, time.Now()))
	a.meter.count(ctx, a.store, err)
	return lease, err
}

// rulesFor returns the rules for a request. One that has waited already, in
// another process or for other candidates, may wait for the rest of MaxWait: it
// may start, but not wait, if nothing is left.
func (a *admitter) rulesFor(req *policy.Request, now time.Time) Rules {
	rules := a.rules
	if rules.MaxWait > 0 && !req.WaitingSince.IsZero() {
		rules.MaxWait = max(rules.MaxWait-now.Sub(req.WaitingSince), 1)
	}
	return rules
}

func (a *admitter) Restore(ctx context.Context, running []policy.Held, waiting []policy.AdmitRequest) ([]policy.Lease, error) {
	return a.store.Restore(ctx, running, waiting, a.rules)
}

package fifo

import (
	"context"
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

func (p *Plugin) build(_ context.Context, config Config) (sdk.Policies, error) {
	policies := sdk.Policies{}
	store := Store(p.memory)
	if config.Store == storePostgres {
		s, leave, err := p.databases.open(database{config.DSN, config.Schema}, config.OnStoreError)
		if err != nil {
			return policies, err
		}
		store, policies.Close = s, leave
	}
	policies.Admission = &admitter{store: store, rules: config.rules()}
	return policies, nil
}

// An admitter is one instance: a store and the rules for its requests.
type admitter struct {
	store Store
	rules Rules
}

var _ policy.Restorer = (*admitter)(nil)

func (a *admitter) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	return a.store.Admit(ctx, req, a.rulesFor(req.Request, time.Now()))
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

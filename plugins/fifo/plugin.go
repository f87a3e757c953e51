package fifo

import (
	"context"

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
	return a.store.Admit(ctx, req, a.rules)
}

func (a *admitter) Restore(ctx context.Context, running []policy.Held, waiting []policy.AdmitRequest) ([]policy.Lease, error) {
	return a.store.Restore(ctx, running, waiting, a.rules)
}

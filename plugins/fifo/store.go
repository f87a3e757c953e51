package fifo

import (
	"context"

	"github.com/usherproxy/usher/plugins/fifo/internal/memory"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A Store keeps who runs and who waits, under the invariants of this package.
// Instances of the policy that use the same store share all scopes.
type Store interface {
	// Admit is [policy.Admitter.Admit] under the given rules. Its errors are
	// [*policy.Rejection], the error of ctx, and that the ticket is in use
	// already.
	Admit(ctx context.Context, req *policy.AdmitRequest, rules Rules) (policy.Lease, error)

	// Restore is [policy.Restorer.Restore] for the requests of one instance.
	// Others may be under way.
	Restore(ctx context.Context, running []policy.Held, waiting []policy.AdmitRequest, rules Rules) ([]policy.Lease, error)
}

var (
	_ Store = (*memory.Store)(nil)
	_ Store = (*postgres.Store)(nil)
)

// Rules say how the requests of one instance wait.
type Rules = queue.Rules

// An Order says which requests may pass which others.
type Order = queue.Order

// The orders. The set is closed.
const (
	// OrderBestEffort lets a request be passed on scopes that it does not wait
	// for. It is the default.
	OrderBestEffort = queue.OrderBestEffort
	// OrderStrict lets nobody pass a request on any scope that it uses.
	OrderStrict = queue.OrderStrict
)

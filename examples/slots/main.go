// Command slots is an admission policy that lets a fixed number of requests run
// at a time, whoever serves them, in no particular order.
package main

import (
	"context"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

type config struct {
	Max int `json:"max"`
}

// slots lets as many requests run as the channel holds.
type slots chan struct{}

func (s slots) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	free := policy.LeaseFunc(func(context.Context, policy.Outcome) error { <-s; return nil })
	select {
	case s <- struct{}{}:
		return free, nil
	default:
		if req.NoWait {
			return nil, policy.Reject(policy.ReasonConcurrency, 0)
		}
	}
	if req.Waiting != nil {
		req.Waiting(1) // everybody may be the next
	}
	select {
	case s <- struct{}{}:
		return free, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func build(_ context.Context, c config) (sdk.Policies, error) {
	return sdk.Policies{Admission: make(slots, c.Max)}, nil
}

func main() { sdk.Serve("slots", config{Max: 8}, build) }

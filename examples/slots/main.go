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
	select {
	case s <- struct{}{}:
	default:
		if err := req.MayWait(1, policy.ReasonConcurrency); err != nil { // everybody may be the next
			return nil, err
		}
		select {
		case s <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return policy.LeaseFunc(func(context.Context, policy.Outcome) error { <-s; return nil }), nil
}

func build(_ context.Context, c config) (sdk.Policies, error) {
	return sdk.Policies{Admission: make(slots, c.Max)}, nil
}

func main() { sdk.Serve("slots", config{Max: 8}, build) }

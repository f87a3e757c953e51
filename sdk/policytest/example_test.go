package policytest_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/policytest"
)

// slots is an admission policy: at most max requests at a time.
type slots struct {
	taken   chan struct{}
	waiting atomic.Int64
}

type slotsConfig struct {
	Max int `json:"max"`
}

func (c slotsConfig) Validate() error {
	if c.Max < 1 {
		return sdk.OptionError("max", "must be at least 1")
	}
	return nil
}

func (s *slots) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	lease := policy.LeaseFunc(func(context.Context, policy.Outcome) error { <-s.taken; return nil })
	select {
	case s.taken <- struct{}{}:
		return lease, nil
	default:
	}
	if req.NoWait {
		return nil, policy.Reject(policy.ReasonConcurrency, 0)
	}
	defer s.waiting.Add(-1)
	if n := s.waiting.Add(1); req.Waiting != nil {
		req.Waiting(int(n))
	}
	select {
	case s.taken <- struct{}{}:
		return lease, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func defineSlots() sdk.Definition {
	return sdk.Define("slots", slotsConfig{Max: 8}, func(_ context.Context, c slotsConfig) (sdk.Policies, error) {
		return sdk.Policies{Admission: &slots{taken: make(chan struct{}, c.Max)}}, nil
	})
}

// A plugin's main calls sdk.Serve with the same arguments as sdk.Define; its
// test needs no more than this.
func Example() {
	test := func(t *testing.T) { // TestSlots, in slots_test.go
		policytest.TestDefinition(t, defineSlots, `{}`, `{"max": 1}`)
	}
	_ = test
}

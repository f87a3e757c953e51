package policytest_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/policytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSlotsKeepTheContract(t *testing.T) {
	t.Parallel()
	policytest.TestDefinition(t, defineSlots, `{}`, `{"max": 1}`)
}

// The smallest policies are tested, too, where they have something to test.
func TestSmallPoliciesKeepTheContract(t *testing.T) {
	t.Parallel()
	policytest.TestDefinition(t, func() sdk.Definition {
		return sdk.Define("small", struct{}{}, func(context.Context, struct{}) (sdk.Policies, error) {
			return sdk.Policies{
				Admission: admitFunc(func(context.Context, *policy.AdmitRequest) (policy.Lease, error) {
					return policy.LeaseFunc(func(context.Context, policy.Outcome) error { return nil }), nil
				}),
				Selection: policy.FilterFunc(func(_ context.Context, _ *policy.Request, c policy.Candidate) (policy.Why, error) {
					if c.Labels["region"] == "us" {
						return policy.Why{Reason: policy.ReasonPolicy, Detail: "residency"}, nil
					}
					return policy.Why{}, nil
				}),
				Observer: observeFunc(func(context.Context, policy.AttemptResult) {}),
			}, nil
		})
	})
}

type admitFunc func(context.Context, *policy.AdmitRequest) (policy.Lease, error)

func (f admitFunc) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	return f(ctx, req)
}

type observeFunc func(context.Context, policy.AttemptResult)

func (f observeFunc) Observe(ctx context.Context, res policy.AttemptResult) { f(ctx, res) }

// The suites can be run alone, with any constructor.
func TestSuitesRunAlone(t *testing.T) {
	t.Parallel()
	policytest.TestSelector(t, func(*testing.T) policy.Selector {
		return policy.FilterFunc(func(context.Context, *policy.Request, policy.Candidate) (policy.Why, error) { return policy.Why{}, nil })
	})
	policytest.TestObserver(t, func(*testing.T) policy.Observer {
		return observeFunc(func(context.Context, policy.AttemptResult) {})
	})
}

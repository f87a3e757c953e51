package policy_test

import (
	"context"
	"fmt"

	"github.com/usherproxy/usher/policy"
)

// A whole selection policy: requests of the group "eu" stay in Europe.
func ExampleFilterFunc() {
	residency := policy.FilterFunc(func(_ context.Context, req *policy.Request, c policy.Candidate) (policy.Why, error) {
		if req.Caller.Group == "eu" && c.Labels["region"] != "eu" {
			return policy.Why{Reason: policy.ReasonPolicy, Detail: "residency"}, nil
		}
		return policy.Why{}, nil
	})

	selection, err := residency.Select(context.Background(), &policy.SelectRequest{
		Request: &policy.Request{Caller: policy.Caller{ID: "alice", Group: "eu"}},
		Candidates: []policy.Candidate{
			{ID: "virginia", Labels: map[string]string{"region": "us"}},
			{ID: "frankfurt", Labels: map[string]string{"region": "eu"}},
		},
	})
	if err != nil {
		fmt.Println(err)
	}
	for _, v := range selection.Verdicts {
		fmt.Println(v.Candidate, v.Status, v.Reason, v.Detail)
	}
	// Output:
	// virginia skipped policy residency
	// frankfurt eligible
}

// A whole admission policy: at most as many requests at a time as the channel
// holds.
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

func ExampleAdmitter() {
	var admitter policy.Admitter = make(slots, 1)
	ctx := context.Background()

	lease, err := admitter.Admit(ctx, &policy.AdmitRequest{})
	fmt.Println("first:", err)

	full, cancel := context.WithCancel(ctx)
	cancel()
	_, err = admitter.Admit(full, &policy.AdmitRequest{})
	fmt.Println("second:", err)

	fmt.Println("release:", lease.Release(ctx, policy.Outcome{Disposition: policy.OK}))
	// Output:
	// first: <nil>
	// second: context canceled
	// release: <nil>
}

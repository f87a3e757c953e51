package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// A Job is what a replica is told to do.
type Job struct {
	// Replica is its number, from 0.
	Replica int

	// Config is the configuration of the policy.
	Config json.RawMessage

	// Closed is the load, if it is one of callers that come back at once.
	Closed *Closed
}

// Run does the job: it calls ready when the store has answered once, does what
// go is closed for, and returns the report.
func (j Job) Run(ctx context.Context, ready func(), begin <-chan struct{}) (report *Report, err error) {
	policies, err := fifo.New().Definition().Build(ctx, j.Config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closePolicies(policies)) }()
	if err := awaitStore(ctx, policies.Admission, fmt.Sprint("hello-", j.Replica)); err != nil {
		return nil, err
	}
	ready()
	select {
	case <-begin:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return j.Closed.run(ctx, policies.Admission, j.Replica), nil
}

// closePolicies gives back what the policy holds, even if the job was cancelled.
func closePolicies(p sdk.Policies) error {
	if p.Close == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return p.Close(ctx)
}

// awaitStore returns when the store admits.
func awaitStore(ctx context.Context, a policy.Admitter, id string) error {
	scope := policy.Scope{ID: id, Kind: policy.ScopeConcurrency, Limit: 1}
	for attempt := 1; ; attempt++ {
		lease, err := a.Admit(ctx, &policy.AdmitRequest{
			Attempt:    attempt,
			Request:    &policy.Request{ID: id, Arrival: 1, Scopes: []policy.Scope{scope}},
			Candidates: []policy.Candidate{{ID: "any"}},
		})
		if err == nil {
			return lease.Release(ctx, policy.Outcome{})
		}
		r, ok := errors.AsType[*policy.Rejection](err)
		if !ok || r.Reason != policy.ReasonStoreUnavailable {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

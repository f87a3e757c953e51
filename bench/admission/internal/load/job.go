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

	// Closed or Random is the load.
	Closed *Closed
	Random *Random

	// Audit is what to do after that, when told to.
	Audit *Audit
}

// A Session is a replica that has opened its store.
type Session struct {
	job      Job
	policies sdk.Policies
}

// Open returns when the store has answered once.
func Open(ctx context.Context, job Job) (*Session, error) {
	policies, err := fifo.New().Definition().Build(ctx, job.Config)
	if err != nil {
		return nil, err
	}
	s := &Session{job, policies}
	if err := awaitStore(ctx, policies.Admission, fmt.Sprint("hello-", job.Replica)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Run does the load.
func (s *Session) Run(ctx context.Context) (*Report, error) {
	if s.job.Random != nil {
		return s.job.Random.run(ctx, s.policies.Admission, s.job.Replica)
	}
	return s.job.Closed.run(ctx, s.policies.Admission, s.job.Replica), nil
}

// Check does the audit.
func (s *Session) Check(ctx context.Context) (*Report, error) {
	return s.job.Audit.run(ctx, s.policies.Admission, s.job.Replica)
}

// Close gives back what the policy holds.
func (s *Session) Close() error {
	if s.policies.Close == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.policies.Close(ctx)
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

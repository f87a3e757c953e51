package fifo_test

import (
	"errors"
	"testing"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/policytest"
)

// A request that is asked for again has waited already: it may start if there is
// room, and has no second patience if there is none.
func TestPatienceIsNotRenewed(t *testing.T) {
	t.Parallel()
	p := policytest.Dial(t, define(), `{"max_wait": "1h"}`).Admission
	request := func(id string, waited time.Duration) *policy.AdmitRequest {
		return &policy.AdmitRequest{
			Attempt: 2, Candidates: []policy.Candidate{{ID: "c", Scopes: []policy.Scope{{ID: "key:k", Kind: policy.ScopeConcurrency, Limit: 1}}}},
			Request: &policy.Request{ID: id, WaitingSince: time.Now().Add(-waited)},
		}
	}
	lease, err := p.Admit(t.Context(), request("first", 2*time.Hour))
	if err != nil {
		t.Fatalf("a request that has waited for too long is refused though there is room: %v", err)
	}
	_, err = p.Admit(t.Context(), request("second", 2*time.Hour))
	if r, ok := errors.AsType[*policy.Rejection](err); !ok || r.Reason != policy.ReasonQueueTimeout {
		t.Errorf("error %v, want %s", err, policy.ReasonQueueTimeout)
	}
	if err := lease.Release(t.Context(), policy.Outcome{Disposition: policy.OK}); err != nil {
		t.Error(err)
	}
}

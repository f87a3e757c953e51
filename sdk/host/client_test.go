package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
	"github.com/usherproxy/usher/sdk/policytest"
)

// admitFunc is an admission policy.
type admitFunc func(context.Context, *policy.AdmitRequest) (policy.Lease, error)

func (f admitFunc) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	return f(ctx, req)
}

// dial serves an admission policy.
func dial(t *testing.T, f admitFunc) policy.Admitter {
	t.Helper()
	d := sdk.Define("admits", struct{}{}, func(context.Context, struct{}) (sdk.Policies, error) {
		return sdk.Policies{Admission: f}, nil
	})
	return policytest.Dial(t, d, "").Admission
}

func ask(id string) *policy.AdmitRequest {
	return &policy.AdmitRequest{
		Request: &policy.Request{ID: id}, Attempt: 1, Candidates: []policy.Candidate{{ID: "a"}, {ID: "b"}},
	}
}

func TestAnInstanceIsUsedLikeAPolicyOfThisProcess(t *testing.T) {
	t.Parallel()
	outcomes := make(chan policy.Outcome, 1)
	admitter := dial(t, func(_ context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
		switch req.Request.ID {
		case "rejected":
			return nil, policy.Reject(policy.ReasonQueueFull, 3)
		case "failed":
			return nil, errors.New("no store")
		}
		req.Waiting(2)
		return policy.LeaseOn(1, func(_ context.Context, out policy.Outcome) error {
			outcomes <- out
			return errors.New("is the policy's own business")
		}), nil
	})
	lease, err := admitter.Admit(t.Context(), ask("r1"))
	if err != nil || lease.Candidate() != 1 {
		t.Fatalf("lease is %v (%v), want one on candidate 1", lease, err)
	}
	out := policy.Outcome{Disposition: policy.Timeout}
	if err := lease.Release(t.Context(), out); err != nil {
		t.Errorf("release: %v", err)
	}
	if got := <-outcomes; got != out {
		t.Errorf("released with %+v, want %+v", got, out)
	}
	_, err = admitter.Admit(t.Context(), ask("rejected"))
	if r, ok := errors.AsType[*policy.Rejection](err); !ok || *r != (policy.Rejection{Reason: policy.ReasonQueueFull, RetryAfter: 3}) {
		t.Errorf("admit: %v, want a rejection for queue_full", err)
	}
	if _, err := admitter.Admit(t.Context(), ask("failed")); err == nil || !strings.Contains(err.Error(), "no store") {
		t.Errorf("admit: %v, want the error of the policy", err)
	}
}

func TestCandidatesOfOtherCatalogsAreNotSent(t *testing.T) {
	t.Parallel()
	client := policytest.Connect(t)
	catalog := newCatalog(t, candidates())
	strange := []policy.Candidate{{ID: "x"}}
	held := []host.Held{{Request: &policy.Request{ID: "r"}, Catalog: catalog, Candidates: strange}}
	_, decideErr := client.Decide(t.Context(), &host.DecideRequest{Request: &policy.Request{}, Catalog: catalog, Candidates: strange})
	_, verdictErr := client.Decide(t.Context(), &host.DecideRequest{
		Request: &policy.Request{}, Catalog: catalog, Verdicts: []policy.Verdict{{Candidate: "x"}},
	})
	_, admitErr := client.Admit(t.Context(), &host.AdmitRequest{Request: &policy.Request{}, Catalog: catalog, Candidates: strange})
	for name, err := range map[string]error{
		"decide": decideErr, "verdict": verdictErr, "admit": admitErr,
		"running": client.Restore(t.Context(), "i", held, nil),
		"waiting": client.Restore(t.Context(), "i", nil, held),
		"observe": client.Observe(t.Context(), []host.Observation{{Catalog: catalog, Result: policy.AttemptResult{Candidate: strange[0]}}}),
	} {
		if err == nil || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%s: %v, want an error about candidate x", name, err)
		}
	}
}

func TestInstancesSendCandidatesOnce(t *testing.T) {
	t.Parallel()
	var seen []policy.Candidate
	admitter := dial(t, func(_ context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
		seen = req.Candidates
		return policy.LeaseFunc(func(context.Context, policy.Outcome) error { return nil }), nil
	})
	for i := range 3 { // the load is new each time
		req := ask("r")
		req.Attempt = i + 1
		req.Candidates[1].Load.InFlight = i
		if _, err := admitter.Admit(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if seen[1].Load.InFlight != i {
			t.Errorf("load is %d, want %d", seen[1].Load.InFlight, i)
		}
	}
	twins := ask("r")
	twins.Candidates[1].ID = "a"
	if _, err := admitter.Admit(t.Context(), twins); err == nil {
		t.Error("two candidates of one ID were sent")
	}
}

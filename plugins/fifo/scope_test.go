package fifo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/policytest"
)

// onEachStore runs test with each store.
func onEachStore(t *testing.T, test func(t *testing.T, a policy.Admitter)) {
	t.Helper()
	for name, config := range map[string]string{"memory": `{}`, "postgres": onPostgres(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, policytest.Build(t, define(), config).Admission)
		})
	}
}

func ask(id string, scopes ...policy.Scope) *policy.AdmitRequest {
	return &policy.AdmitRequest{
		Attempt: 1, Candidates: []policy.Candidate{{ID: "c"}}, Request: &policy.Request{ID: id, Scopes: scopes},
	}
}

func slots(id string, limit int64) policy.Scope {
	return policy.Scope{ID: id, Kind: policy.ScopeConcurrency, Limit: limit}
}

func TestWhoWaitsForOneScopeHoldsUpNoOther_B31(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, a policy.Admitter) {
		full, err := a.Admit(t.Context(), ask("a0", slots("a", 1)))
		if err != nil {
			t.Fatal(err)
		}
		waits := ask("a1", slots("a", 1))
		begun := make(chan int, 100)
		waits.Waiting = func(position int) { begun <- position }
		admitted := make(chan error, 1)
		go func() {
			lease, err := a.Admit(t.Context(), waits)
			if err == nil {
				err = lease.Release(context.WithoutCancel(t.Context()), policy.Outcome{})
			}
			admitted <- err
		}()
		<-begun
		for i := range 5 {
			lease, err := a.Admit(t.Context(), ask(fmt.Sprint("b", i), slots("b", 5)))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lease.Release(context.WithoutCancel(t.Context()), policy.Outcome{}) }()
		}
		if err := full.Release(t.Context(), policy.Outcome{}); err != nil {
			t.Error(err)
		}
		if err := <-admitted; err != nil {
			t.Error(err)
		}
	})
}

func TestRefusalTakesNothingOfAnyWindow_B38(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, a policy.Admitter) {
		hour := policy.Scope{ID: "key:k", Kind: policy.ScopeRequests, Limit: 10, Window: time.Hour}
		day := policy.Scope{ID: "key:k", Kind: policy.ScopeRequests, Limit: 5, Window: 24 * time.Hour}
		refused := 0
		for i := range 8 {
			req := ask(fmt.Sprint("r", i), hour, day)
			req.NoWait = true
			lease, err := a.Admit(t.Context(), req)
			if r, ok := errors.AsType[*policy.Rejection](err); ok && r.Reason == policy.ReasonKeyRequests {
				refused++
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Release(t.Context(), policy.Outcome{}); err != nil {
				t.Error(err)
			}
		}
		if refused != 3 {
			t.Errorf("%d of 8 were refused by a limit of 5 a day, want 3", refused)
		}
		for i := range 6 { // the other five of ten an hour are left, and no more
			req := ask(fmt.Sprint("s", i), hour)
			req.NoWait = true
			lease, err := a.Admit(t.Context(), req)
			if (err == nil) != (i < 5) {
				t.Errorf("request %d by the hour alone: error %v", i+1, err)
			}
			if err == nil {
				_ = lease.Release(t.Context(), policy.Outcome{})
			}
		}
	})
}

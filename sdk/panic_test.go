package sdk_test

import (
	"context"
	"strings"
	"testing"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
)

// bomb panics in every method, except that admit lets it admit first.
type bomb struct{ admit bool }

func (b bomb) Admit(context.Context, *policy.AdmitRequest) (policy.Lease, error) {
	if b.admit {
		return b, nil
	}
	panic("boom")
}
func (bomb) Candidate() int                                { panic("boom") }
func (bomb) Release(context.Context, policy.Outcome) error { panic("boom") }

func (bomb) Restore(context.Context, []policy.Held, []policy.AdmitRequest) ([]policy.Lease, error) {
	panic("boom")
}

func (bomb) Select(context.Context, *policy.SelectRequest) (policy.Selection, error) {
	panic("boom")
}
func (bomb) Observe(context.Context, policy.AttemptResult) { panic("boom") }
func (bomb) Close(context.Context) error                   { panic("boom") }

// A panic is an error of its call, and the process goes on.
func TestPanicsAreErrorsOfTheirCall(t *testing.T) {
	t.Parallel()
	d := newDesk()
	l := connect(t, map[string]sdk.Policies{
		"bomb":  {Admission: bomb{}, Selection: bomb{}, Observer: bomb{}, Close: bomb{}.Close},
		"lease": {Admission: bomb{admit: true}},
		"desk":  {Admission: d},
	})
	for _, instance := range []string{"bomb", "lease"} {
		req := l.ask("r1")
		req.Instance = instance
		if a := l.admit(req); a.Err == nil || !strings.Contains(a.Err.Error(), "boom") {
			t.Errorf("admission of %s is %+v, want the panic", instance, a)
		}
	}
	if err := l.Restore(t.Context(), "bomb", nil, nil); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("restore: %v, want the panic", err)
	}
	got := l.decide(&host.DecideRequest{Request: &policy.Request{ID: "r1"}, Catalog: l.catalog, Candidates: l.catalog.Candidates, Select: []string{"bomb"}})
	if err := got.Selections[0].Err; err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("select: %v, want the panic", err)
	}
	res := policy.AttemptResult{Candidate: policy.Candidate{ID: "a"}}
	if err := l.Observe(t.Context(), []host.Observation{{Instances: []string{"bomb"}, Catalog: l.catalog, Result: res}}); err != nil {
		t.Errorf("observe: %v", err)
	}
	if err := l.Drain(t.Context(), "bomb"); err != nil {
		t.Errorf("drain: %v", err)
	}

	v := l.park(d, "r1") // a panic in the release of a lease
	v.answer <- func() (policy.Lease, error) {
		return policy.LeaseFunc(func(context.Context, policy.Outcome) error { panic("boom") }), nil
	}
	l.admit(l.ask("r1"))
	l.release(host.Ticket{ID: "r1", Attempt: 1})
	l.park(d, "r2").admits(0)
	if a := l.admit(l.ask("r2")); a.Candidate != "b" {
		t.Errorf("admission after panics is %+v, want a lease on b", a)
	}
}

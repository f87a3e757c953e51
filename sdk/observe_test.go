package sdk_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
)

type observeFunc func(context.Context, policy.AttemptResult)

func (f observeFunc) Observe(ctx context.Context, res policy.AttemptResult) { f(ctx, res) }

func TestObserversHearOfEachAttempt(t *testing.T) {
	t.Parallel()
	heard := make(chan policy.AttemptResult, 10)
	listen := observeFunc(func(_ context.Context, res policy.AttemptResult) { heard <- res })
	l := connect(t, map[string]sdk.Policies{
		"one":      {Observer: listen},
		"two":      {Observer: listen},
		"panics":   {Observer: observeFunc(func(context.Context, policy.AttemptResult) { panic("oh") })},
		"does not": {Selection: selectFunc(skipB)},
	})
	res := policy.AttemptResult{
		RequestID: "r1", Attempt: 2, Candidate: policy.Candidate{ID: "b"}, Disposition: policy.RateLimited, Status: 429,
		Until: time.Unix(1_800_000_000, 0).UTC(), Usage: &policy.Usage{InputTokens: 5}, EndedAt: time.Unix(1_799_999_000, 0).UTC(),
	}
	err := l.Observe(t.Context(), []host.Observation{{Instances: []string{"panics", "one", "nobody", "does not", "two"}, Catalog: l.catalog, Result: res}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if diff := cmp.Diff(res, receive(t, heard, "observation")); diff != "" {
			t.Errorf("heard (-want +got):\n%s", diff)
		}
	}
}

// The host sends all of it again when a catalog is not known.
func TestObserversHearNothingOfACallThatFails(t *testing.T) {
	t.Parallel()
	heard := make(chan policy.AttemptResult, 10)
	l := connect(t, map[string]sdk.Policies{
		"one": {Observer: observeFunc(func(_ context.Context, res policy.AttemptResult) { heard <- res })},
	})
	unsent, err := host.NewCatalog([]policy.Candidate{{ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	err = l.Observe(t.Context(), []host.Observation{
		{Instances: []string{"one"}, Catalog: l.catalog, Result: policy.AttemptResult{RequestID: "r1", Candidate: policy.Candidate{ID: "a"}}},
		{Instances: []string{"one"}, Catalog: unsent, Result: policy.AttemptResult{RequestID: "r2", Candidate: policy.Candidate{ID: "x"}}},
	})
	if !host.Unknown(err) || len(heard) > 0 {
		t.Errorf("observe: %v, and %d results were heard; want an unknown catalog, and none", err, len(heard))
	}
	err = l.Observe(t.Context(), []host.Observation{{Instances: []string{"one"}, Catalog: l.catalog, Result: policy.AttemptResult{Candidate: policy.Candidate{ID: "x"}}}})
	if err == nil {
		t.Error("a result on a candidate that is not in its catalog was sent")
	}
}

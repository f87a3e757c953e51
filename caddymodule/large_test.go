package caddymodule_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/policy"
)

// pool returns n candidates, each of a key with limits of its own.
func pool(n int) []policy.Candidate {
	out := make([]policy.Candidate, n)
	for i := range out {
		key := fmt.Sprintf("account-%05d", i)
		out[i] = policy.Candidate{
			ID: "provider/" + key + "/model", Provider: "provider", Key: key, Model: "model",
			Scopes: []policy.Scope{
				{ID: "key:provider/" + key, Kind: policy.ScopeConcurrency, Limit: 8},
				{ID: "key:provider/" + key, Kind: policy.ScopeRequests, Limit: 600, Window: time.Minute},
			},
		}
	}
	return out
}

// Who is not mentioned is skipped, in the order in which they were offered,
// after the verdicts of the policy; however many there are.
func TestUnmentionedCandidatesAreSkipped(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 3, 16, 17, 1000} {
		offered := pool(n)
		for name, mentions := range map[string]func(i int) bool{
			"nobody":    func(int) bool { return false },
			"every 2nd": func(i int) bool { return i%2 == 1 },
			"everybody": func(int) bool { return true },
		} {
			var s policy.Selection
			var unmentioned []policy.Verdict
			for i, c := range offered {
				if mentions(i) {
					s.Verdicts = append(s.Verdicts, policy.Verdict{Candidate: c.ID, Status: policy.Eligible})
				} else {
					why := policy.Why{Reason: policy.ReasonNotRanked}
					unmentioned = append(unmentioned, policy.Verdict{Candidate: c.ID, Status: policy.Skipped, Why: why})
				}
			}
			slices.Reverse(s.Verdicts)
			said := slices.Clone(s.Verdicts)
			got := caddymodule.Complete(s, offered)
			if diff := cmp.Diff(slices.Concat(said, unmentioned), got); diff != "" && len(got)+n > 0 {
				t.Errorf("%d candidates, of which the policy mentions %s (-want +got):\n%s", n, name, diff)
			}
		}
	}
}

// The scopes of one described candidate are not those of the next one.
func TestDescribedScopesAreApart(t *testing.T) {
	t.Parallel()
	offered := pool(3)
	got, _ := caddymodule.NewFacts().Describe(offered, nil)
	_ = append(got[0].Scopes, policy.Scope{ID: "added"})
	if diff := cmp.Diff(offered[1].Scopes, got[1].Scopes); diff != "" {
		t.Errorf("a scope added to one candidate changed the next one (-want +got):\n%s", diff)
	}
}

// What a request costs per candidate that its model has. "used" is with a
// request in flight on every key.
func BenchmarkLargeCatalog(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		offered := pool(n)
		idle, used := caddymodule.NewFacts(), caddymodule.NewFacts()
		for _, c := range offered {
			used.Begin(c, &policy.Request{})
			used.Learn(policy.AttemptResult{Candidate: c, Disposition: policy.OK, FirstEvent: time.Second})
		}
		for name, f := range map[string]*caddymodule.Facts{"idle": idle, "used": used} {
			b.Run(fmt.Sprintf("describe/%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					f.Describe(offered, nil)
				}
			})
		}
		var all policy.Selection
		for _, c := range offered {
			all.Verdicts = append(all.Verdicts, policy.Verdict{Candidate: c.ID, Status: policy.Eligible})
		}
		half := policy.Selection{Verdicts: all.Verdicts[n/2:]}
		for name, s := range map[string]policy.Selection{"all": all, "half": half} {
			b.Run(fmt.Sprintf("complete/%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					caddymodule.Complete(s, offered)
				}
			})
		}
	}
}

package keys_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/usherproxy/usher/plugins/keys"
	"github.com/usherproxy/usher/policy"
)

// BenchmarkSelect judges and ranks candidates of which every tenth cools down
// or has an open breaker.
func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, candidates := benchmarkSite(b, n)
			req := &policy.SelectRequest{
				Request: &policy.Request{ID: "r", Format: "openai", Scopes: []policy.Scope{
					{ID: "caller:alice", Kind: policy.ScopeConcurrency, Limit: 9, Used: 1},
				}},
				Candidates: candidates,
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := s.Select(b.Context(), req); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func BenchmarkObserve(b *testing.B) {
	s, candidates := benchmarkSite(b, 1000)
	observer := s.(policy.Observer)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		observer.Observe(b.Context(), policy.AttemptResult{
			RequestID: "r", Candidate: candidates[i%len(candidates)], Format: "openai", Disposition: policy.OK,
		})
	}
}

func benchmarkSite(b *testing.B, n int) (policy.Selector, []policy.Candidate) {
	b.Helper()
	plugin := keys.New()
	plugin.Logger = slog.New(slog.DiscardHandler)
	p, err := plugin.Definition().Build(b.Context(), []byte(`{"breaker": {"open": "1h", "open_max": "1h"}, "cooldown": "1h"}`))
	if err != nil {
		b.Fatal(err)
	}
	candidates := make([]policy.Candidate, n)
	for i := range candidates {
		c := candidate(fmt.Sprintf("provider/key-%d/some-model", i))
		c.Scopes = []policy.Scope{
			{ID: "provider:provider", Kind: policy.ScopeConcurrency, Limit: 1 << 40},
			{ID: "key:provider/" + c.Key, Kind: policy.ScopeConcurrency, Limit: 4, Used: int64(i % 5)},
		}
		candidates[i] = c
		d := policy.OK
		switch i % 20 {
		case 1:
			d = policy.RateLimited
		case 11:
			d = policy.Overloaded
		}
		for range 5 {
			p.Observer.Observe(b.Context(), policy.AttemptResult{Candidate: c, Format: "openai", Disposition: d})
		}
	}
	return p.Selection, candidates
}

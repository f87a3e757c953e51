package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/usherproxy/usher/policy"
)

// Observer returns the checks that a [policy.Observer] takes whatever the host
// tells it, from many goroutines, and does not block. Each check gets an
// instance of its own from build.
func Observer(build func(t T) policy.Observer) []Check {
	return []Check{
		{"all dispositions are taken under concurrency", func(t T) { observe(t.Context(), t, build(t)) }},
		{"an ended context is taken", func(t T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			observe(ctx, t, build(t))
		}},
	}
}

func observe(ctx context.Context, t T, o policy.Observer) {
	var hosts sync.WaitGroup
	for i := range 8 {
		hosts.Go(func() {
			for _, res := range results(newOffers(uint64(i))) {
				o.Observe(ctx, res)
			}
		})
	}
	waitFor(t, &hosts, "Observe")
}

// results returns attempts that ended in every way.
func results(o *offers) []policy.AttemptResult {
	var all []policy.AttemptResult
	for i, disposition := range policy.Dispositions() {
		res := policy.AttemptResult{
			RequestID:   fmt.Sprintf("%s-%d", o.name, i),
			Attempt:     1 + i%3,
			Candidate:   o.candidate(i % 4),
			Format:      "openai",
			Operation:   "chat",
			Disposition: disposition,
			EndedAt:     o.now,
		}
		all = append(all, res) // as little as may be known
		res.Attempt += 3
		res.Status = []int{200, 400, 401, 429, 500, 529}[i%6]
		res.Until = o.now.Add(time.Minute)
		res.Usage = &policy.Usage{InputTokens: 100, OutputTokens: 20, CachedTokens: 60, ReasoningTokens: 10}
		res.About = []policy.Subject{policy.SubjectKey, policy.SubjectAccount, policy.SubjectModel}[i%3]
		res.Windows = []policy.Window{
			{Name: "requests", About: policy.SubjectModel, Kind: policy.ScopeRequests, Length: time.Minute, Limit: 60, Used: 0.5, Resets: o.now.Add(time.Second), ObservedAt: o.now},
			{Name: "weekly", About: policy.SubjectAccount, Used: 1, ObservedAt: o.now},
		}
		res.FirstEvent, res.Duration = 20*time.Millisecond, time.Second
		all = append(all, res)
	}
	return all
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/usherproxy/usher/policy"
)

// Selector returns what every [policy.Selector] must keep, whatever it prefers.
// Each check gets an instance of its own from build.
func Selector(build func(t T) policy.Selector) []Check {
	checks := []struct {
		name  string
		check func(t T, s policy.Selector)
	}{
		{"answers are about what was offered", judgesWhatIsOffered},
		{"no candidates", judgesNothing},
		{"earlier verdicts", judgesAfterOthers},
		{"answers are right under concurrency", judgesConcurrently},
		{"arguments are not changed", keepsQuestions},
		{"an ended context is answered at once", answersEndedContexts},
	}
	all := make([]Check, len(checks))
	for i, c := range checks {
		all[i] = Check{c.name, func(t T) { c.check(t, build(t)) }}
	}
	return all
}

// offers are requests with candidates of all sorts. Equal seeds make equal
// offers.
type offers struct {
	*world
	dice *rand.Rand
}

func newOffers(seed uint64) *offers {
	w := &world{name: fmt.Sprintf("w%d", seed), now: time.Unix(1_800_000_000, 0)}
	return &offers{w, rand.New(rand.NewPCG(seed, 0))}
}

// next returns a request with n candidates.
func (o *offers) next(n int) *policy.SelectRequest {
	req := &policy.SelectRequest{Request: o.request(o.scope("fleet", 100))}
	req.Request.Stream = o.dice.IntN(2) == 0
	req.Request.InputTokens = o.dice.Int64N(200_000)
	req.Request.MinInputTokens = o.dice.Int64N(req.Request.InputTokens + 1)
	for i := range n {
		req.Candidates = append(req.Candidates, o.candidate(i))
	}
	return req
}

func (o *offers) candidate(i int) policy.Candidate {
	key := o.scope(fmt.Sprintf("key:k%d", i), 1+o.dice.Int64N(4))
	key.Used = o.dice.Int64N(5)
	c := candidate(fmt.Sprintf("k%d", i), key)
	c.Account = []string{c.Account, "openai/shared"}[o.dice.IntN(2)]
	rate := policy.Scope{ID: o.name + ":key:requests", Kind: policy.ScopeRequests, Limit: 10, Window: time.Minute, Used: o.dice.Int64N(12)}
	if rate.Used > 0 {
		rate.Resets = o.now.Add(time.Duration(o.dice.Int64N(int64(time.Minute)))).UTC()
	}
	c.Scopes = append(c.Scopes, rate)
	c.Priority, c.Weight = o.dice.IntN(3), o.dice.IntN(4)
	c.Disabled = o.dice.IntN(5) == 0
	c.ContextTokens = []int64{0, 8_000, 128_000}[o.dice.IntN(3)]
	c.Labels = []map[string]string{nil, {"region": "us"}, {"region": "eu", "tier": "plus"}}[o.dice.IntN(3)]
	c.Load = policy.Load{
		InFlight: int(key.Used),
		Latency:  time.Duration(o.dice.Int64N(int64(time.Second))).Truncate(time.Microsecond),
		Failures: o.dice.Float64(),
	}
	return c
}

// judge calls Select and checks its answer.
func judge(t T, s policy.Selector, req *policy.SelectRequest) policy.Selection {
	t.Helper()
	selection, err := s.Select(t.Context(), req)
	if err != nil {
		t.Errorf("Select among %d candidates: %v", len(req.Candidates), err)
	} else if err := selection.Check(req.Candidates); err != nil {
		t.Errorf("Select among %d candidates: %v", len(req.Candidates), err)
	}
	return selection
}

func judgesWhatIsOffered(t T, s policy.Selector) {
	o := newOffers(1)
	for i := range 200 {
		judge(t, s, o.next(i%20))
	}
}

func judgesNothing(t T, s policy.Selector) {
	if selection := judge(t, s, newOffers(2).next(0)); len(selection.Verdicts) > 0 {
		t.Errorf("verdicts on no candidate: %v", selection.Verdicts)
	}
}

func judgesAfterOthers(t T, s policy.Selector) {
	o := newOffers(3)
	for range 50 {
		req := o.next(8)
		for _, c := range req.Candidates[:3] {
			req.Verdicts = append(req.Verdicts, policy.Verdict{
				Candidate: c.ID, Status: policy.Skipped, Why: policy.Why{Reason: policy.ReasonPolicy, Detail: "residency"},
			})
		}
		for _, c := range req.Candidates[3:] {
			req.Verdicts = append(req.Verdicts, policy.Verdict{Candidate: c.ID, Status: policy.Eligible})
		}
		req.Candidates = slices.Clone(req.Candidates[3:])
		judge(t, s, req)
	}
}

func judgesConcurrently(t T, s policy.Selector) {
	var clients sync.WaitGroup
	for i := range 50 {
		clients.Go(func() {
			o := newOffers(uint64(i % 5)) // some of them ask the same
			for range 20 {
				judge(t, s, o.next(6))
			}
		})
	}
	waitFor(t, &clients, "concurrent requests")
}

func keepsQuestions(t T, s policy.Selector) {
	asked, want := newOffers(4), newOffers(4)
	for range 50 {
		a, w := asked.next(6), want.next(6)
		judge(t, s, a)
		if !reflect.DeepEqual(a, w) {
			t.Fatalf("Select changed its argument to %+v, want %+v", a, w)
		}
	}
}

func answersEndedContexts(t T, s policy.Selector) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req := newOffers(5).next(6)
	var call sync.WaitGroup
	call.Go(func() {
		selection, err := s.Select(ctx, req)
		if err == nil {
			err = selection.Check(req.Candidates)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Select in an ended context: %v; want an answer or %v", err, context.Canceled)
		}
	})
	waitFor(t, &call, "Select in an ended context")
}

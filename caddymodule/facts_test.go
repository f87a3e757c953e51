package caddymodule_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/policy"
)

func TestFactsCountWhatRuns(t *testing.T) {
	t.Parallel()
	key := policy.Scope{ID: "key:p/k", Kind: policy.ScopeConcurrency, Limit: 4}
	caller := policy.Scope{ID: "caller:a", Kind: policy.ScopeConcurrency, Limit: 4}
	one := policy.Candidate{ID: "p/k/one", Provider: "p", Key: "k", Scopes: []policy.Scope{key}}
	two := policy.Candidate{ID: "p/k/two", Provider: "p", Key: "k", Scopes: []policy.Scope{key}}
	other := policy.Candidate{ID: "p/o/one", Provider: "p", Key: "o"}
	f := caddymodule.NewFacts()
	expect := func(inFlight int, keyUsed, callerUsed int64) {
		t.Helper()
		candidates, scopes := f.Describe([]policy.Candidate{one, two, other}, []policy.Scope{caller})
		for _, c := range candidates[:2] {
			if c.Load.InFlight != inFlight || c.Scopes[0].Used != keyUsed {
				t.Errorf("%s: %d in flight and scopes %+v, want %d and %d", c.ID, c.Load.InFlight, c.Scopes, inFlight, keyUsed)
			}
		}
		if candidates[2].Load.InFlight != 0 || scopes[0].Used != callerUsed {
			t.Errorf("other key %+v, caller %+v", candidates[2], scopes[0])
		}
	}
	expect(0, 0, 0)
	first := f.Begin(one, &policy.Request{Scopes: []policy.Scope{caller}})
	second := f.Begin(two, &policy.Request{})
	expect(2, 2, 1)
	first.End(nil)
	first.End(nil) // counts once
	first.Undo()
	expect(1, 1, 0)
	second.Undo()
	expect(0, 0, 0)
	var none *caddymodule.Hold
	none.End(nil)
	if one.Load.InFlight != 0 || one.Scopes[0].Used != 0 {
		t.Errorf("the catalog was changed: %+v", one)
	}
}

func TestFactsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	f := caddymodule.NewFacts()
	c := policy.Candidate{ID: "p/k/m", Provider: "p", Key: "k", Scopes: []policy.Scope{{ID: "key:p/k", Kind: policy.ScopeConcurrency, Limit: 1}, {ID: "key:p/k", Kind: policy.ScopeRequests, Limit: 1, Window: time.Hour}}}
	var wg sync.WaitGroup
	numbers := make(chan int64, 800)
	for range 8 {
		wg.Go(func() {
			for range 100 {
				h := f.Begin(c, &policy.Request{Scopes: c.Scopes[:1]})
				f.Describe([]policy.Candidate{c}, c.Scopes)
				f.Learn(policy.AttemptResult{Candidate: c, Disposition: policy.OK, FirstEvent: time.Second})
				numbers <- f.Arrive()
				h.End(nil)
			}
		})
	}
	wg.Wait()
	close(numbers)
	seen := make(map[int64]bool)
	for n := range numbers {
		if seen[n] || n < 1 || n > 800 {
			t.Errorf("arrival %d twice or out of range", n)
		}
		seen[n] = true
	}
	got, _ := f.Describe([]policy.Candidate{c}, nil)
	if got[0].Load.InFlight != 0 || got[0].Scopes[0].Used != 0 || got[0].Scopes[1].Used != 800 {
		t.Errorf("left: %+v", got[0])
	}
}

func TestFactsLearnFromWhatTellsOfTheCandidate(t *testing.T) {
	t.Parallel()
	c := policy.Candidate{ID: "p/k/m"}
	type step struct {
		d     policy.Disposition
		first time.Duration
	}
	for name, s := range map[string]struct {
		steps    []step
		latency  time.Duration
		failures float64
	}{
		"nothing":                 {nil, 0, 0},
		"neutral ends":            {[]step{{policy.ClientGone, 9}, {policy.ClientFault, 9}, {policy.Denied, 9}, {policy.RateLimited, 9}}, 0, 0},
		"first success":           {[]step{{policy.OK, 100}}, 100, 0},
		"moving average":          {[]step{{policy.OK, 100}, {policy.OK, 200}}, 120, 0},
		"failure":                 {[]step{{policy.Timeout, 0}}, 0, 0.2},
		"success after failures":  {[]step{{policy.Overloaded, 0}, {policy.UpstreamError, 7}, {policy.OK, 100}}, 100, 0.288},
		"success without content": {[]step{{policy.OK, 100}, {policy.OK, 0}}, 100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := caddymodule.NewFacts()
			for _, step := range s.steps {
				f.Learn(policy.AttemptResult{Candidate: c, Disposition: step.d, FirstEvent: step.first})
			}
			got, _ := f.Describe([]policy.Candidate{c}, nil)
			load := got[0].Load
			if diff := load.Failures - s.failures; load.Latency != s.latency || diff > 1e-9 || diff < -1e-9 {
				t.Errorf("latency %d and failures %g, want %d and %g", load.Latency, load.Failures, s.latency, s.failures)
			}
		})
	}
}

// Requests stay counted, tokens are settled, and what never ran leaves nothing.
func TestFactsCountRates(t *testing.T) {
	t.Parallel()
	requests := policy.Scope{ID: "key:p/k", Kind: policy.ScopeRequests, Limit: 10, Window: time.Hour}
	tokens := policy.Scope{ID: "key:p/k", Kind: policy.ScopeTokens, Limit: 1000, Window: time.Hour}
	caller := policy.Scope{ID: "caller:a", Kind: policy.ScopeTokens, Limit: 50, Window: time.Hour}
	c := policy.Candidate{ID: "p/k/m", Provider: "p", Key: "k", Scopes: []policy.Scope{requests, tokens}}
	req := &policy.Request{InputTokens: 60, MaxOutputTokens: 40, Scopes: []policy.Scope{caller}}
	f := caddymodule.NewFacts()
	expect := func(wantRequests, wantTokens, wantCaller int64) {
		t.Helper()
		candidates, scopes := f.Describe([]policy.Candidate{c}, req.Scopes)
		got := []policy.Scope{candidates[0].Scopes[0], candidates[0].Scopes[1], scopes[0]}
		for i, want := range []int64{wantRequests, wantTokens, wantCaller} {
			if got[i].Used != want {
				t.Errorf("%s of %s: %d used, want %d", got[i].Kind, got[i].ID, got[i].Used, want)
			}
			if left := time.Until(got[i].Resets); want > 0 && (left < 59*time.Minute || left > 62*time.Minute) {
				t.Errorf("%s of %s resets in %s, want an hour", got[i].Kind, got[i].ID, left)
			}
		}
	}
	expect(0, 0, 0)
	known, unknown, never := f.Begin(c, req), f.Begin(c, req), f.Begin(c, req)
	expect(3, 300, 150)
	known.End(&policy.Usage{InputTokens: 7, OutputTokens: 3})
	expect(3, 210, 110)
	unknown.End(nil)
	expect(3, 210, 110)
	never.Undo()
	expect(2, 110, 60)
}

// Callers who leave are forgotten once their windows have passed.
func TestFactsForgetIdleRates(t *testing.T) {
	t.Parallel()
	f := caddymodule.NewFacts()
	for i := range 5000 {
		s := policy.Scope{ID: fmt.Sprint("caller:", i), Kind: policy.ScopeRequests, Limit: 1, Window: time.Nanosecond}
		f.Begin(policy.Candidate{ID: "p/k/m"}, &policy.Request{Scopes: []policy.Scope{s}}).End(nil)
	}
	if n := f.Rates(); n > 200 {
		t.Errorf("%d windows are counted", n)
	}
}

// A rate never counts less than was taken within its window, and never what
// was taken more than a part of the window before it.
func TestRatesAreThoseOfTheLastWindow(t *testing.T) {
	t.Parallel()
	type taken struct {
		at time.Duration
		n  int64
	}
	for seed := range uint64(200) {
		dice := rand.New(rand.NewPCG(seed, 0))
		window := time.Duration(1 + dice.Int64N(int64(time.Minute)))
		part := max(window/60, 1)
		var r caddymodule.Rate
		var all []taken
		now := time.Duration(0)
		for range 300 {
			now += time.Duration(dice.Int64N(int64(window)/20 + 1))
			if dice.IntN(30) == 0 {
				now += 2 * window
			}
			switch {
			case len(all) > 0 && dice.IntN(3) == 0: // settle an old one
				t := &all[max(0, len(all)-1-dice.IntN(5))]
				used := dice.Int64N(2*t.n + 1)
				r.Count(now, window)
				r.Add(t.at, window, used-t.n)
				t.n = used
			default:
				t := taken{now, 1 + dice.Int64N(100)}
				all = append(all, t)
				r.Count(now, window)
				r.Add(now, window, t.n)
			}
			var least, most int64
			for _, t := range all {
				if t.at > now-window {
					least += t.n
				}
				if t.at > now-window-part {
					most += t.n
				}
			}
			got, resets := r.Count(now, window)
			if got < least || got > most {
				t.Fatalf("seed %d: %d counted, want %d to %d", seed, got, least, most)
			}
			if got > 0 && (resets <= now || resets > now+window+part) {
				t.Fatalf("seed %d: resets at %s, now is %s and the window %s", seed, resets, now, window)
			}
		}
	}
}

package caddymodule_test

import (
	"sync"
	"testing"
	"time"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/policy"
)

func TestFactsCountWhatRuns(t *testing.T) {
	t.Parallel()
	key := policy.Scope{ID: "key:p/k", Kind: policy.ScopeConcurrency, Limit: 4}
	rate := policy.Scope{ID: "key:p/k", Kind: policy.ScopeRequests, Limit: 4, Window: time.Minute}
	caller := policy.Scope{ID: "caller:a", Kind: policy.ScopeConcurrency, Limit: 4}
	one := policy.Candidate{ID: "p/k/one", Provider: "p", Key: "k", Scopes: []policy.Scope{key, rate}}
	two := policy.Candidate{ID: "p/k/two", Provider: "p", Key: "k", Scopes: []policy.Scope{key, rate}}
	other := policy.Candidate{ID: "p/o/one", Provider: "p", Key: "o"}
	f := caddymodule.NewFacts()
	expect := func(inFlight int, keyUsed, callerUsed int64) {
		t.Helper()
		candidates, scopes := f.Describe([]policy.Candidate{one, two, other}, []policy.Scope{caller})
		for _, c := range candidates[:2] {
			if c.Load.InFlight != inFlight || c.Scopes[0].Used != keyUsed || c.Scopes[1].Used != 0 {
				t.Errorf("%s: %d in flight and scopes %+v, want %d and %d", c.ID, c.Load.InFlight, c.Scopes, inFlight, keyUsed)
			}
		}
		if candidates[2].Load.InFlight != 0 || scopes[0].Used != callerUsed {
			t.Errorf("other key %+v, caller %+v", candidates[2], scopes[0])
		}
	}
	expect(0, 0, 0)
	endOne := f.Begin(one, []policy.Scope{caller})
	endTwo := f.Begin(two, nil)
	expect(2, 2, 1)
	endOne()
	endOne() // counts once
	expect(1, 1, 0)
	endTwo()
	expect(0, 0, 0)
	if one.Load.InFlight != 0 || one.Scopes[0].Used != 0 {
		t.Errorf("the catalog was changed: %+v", one)
	}
}

func TestFactsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	f := caddymodule.NewFacts()
	c := policy.Candidate{ID: "p/k/m", Provider: "p", Key: "k", Scopes: []policy.Scope{{ID: "key:p/k", Kind: policy.ScopeConcurrency, Limit: 1}}}
	var wg sync.WaitGroup
	numbers := make(chan int64, 800)
	for range 8 {
		wg.Go(func() {
			for range 100 {
				end := f.Begin(c, c.Scopes)
				f.Describe([]policy.Candidate{c}, c.Scopes)
				f.Learn(policy.AttemptResult{Candidate: c, Disposition: policy.OK, FirstEvent: time.Second})
				numbers <- f.Arrive()
				end()
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
	if got[0].Load.InFlight != 0 || got[0].Scopes[0].Used != 0 {
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

package caddymodule

import (
	"sync"
	"time"

	"github.com/usherproxy/usher/policy"
)

// facts is what this process knows of the work that it does: what runs now, on
// which key and under which scope, and how candidates fared. It is shared by
// all sites and outlives reloads.
type facts struct {
	start time.Time // of the clock of rates

	mu         sync.Mutex
	arrivals   int64
	keys       map[string]int // attempts in flight, by provider/key
	scopes     map[string]int64
	rates      map[rateKey]*rate
	swept      int // how many rates were left when idle ones were last removed
	candidates map[string]*experience
}

// experience is how one candidate fared lately.
type experience struct {
	latency  time.Duration
	failures float64
}

// smoothing is the weight of the newest observation in a moving average.
const smoothing = 0.2

func newFacts() *facts {
	return &facts{
		start: time.Now(),
		keys:  make(map[string]int), scopes: make(map[string]int64), rates: make(map[rateKey]*rate),
		candidates: make(map[string]*experience),
	}
}

// arrive returns the next number of arrival.
func (f *facts) arrive() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrivals++
	return f.arrivals
}

// describe returns candidates and scopes with what is known of them now. It
// leaves its arguments as they are.
func (f *facts) describe(candidates []policy.Candidate, requestScopes []policy.Scope) ([]policy.Candidate, []policy.Scope) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Since(f.start)
	described := make([]policy.Candidate, len(candidates))
	for i, c := range candidates {
		c.Load.InFlight = f.keys[keyOf(c)]
		if x := f.candidates[c.ID]; x != nil {
			c.Load.Latency, c.Load.Failures = x.latency, x.failures
		}
		c.Scopes = f.usedLocked(now, c.Scopes)
		described[i] = c
	}
	return described, f.usedLocked(now, requestScopes)
}

func (f *facts) usedLocked(now time.Duration, scopes []policy.Scope) []policy.Scope {
	if len(scopes) == 0 {
		return nil
	}
	used := make([]policy.Scope, len(scopes))
	for i, s := range scopes {
		if s.Kind == policy.ScopeConcurrency {
			s.Used = f.scopes[s.ID]
			used[i] = s
			continue
		}
		s.Used, s.Resets = 0, time.Time{}
		if r := f.rates[rateKeyOf(s)]; r != nil {
			if r.expire(now, s.Window); len(r.slots) > 0 {
				s.Used, s.Resets = max(r.total, 0), f.start.Add(r.resets(s.Window))
			}
		}
		used[i] = s
	}
	return used
}

// learn takes note of how an attempt ended.
func (f *facts) learn(res policy.AttemptResult) {
	if res.Disposition != policy.OK && !res.Disposition.Failure() {
		return // it says nothing of the candidate
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.candidates[res.Candidate.ID]
	if x == nil {
		x = new(experience)
		f.candidates[res.Candidate.ID] = x
	}
	failed := 0.0
	switch {
	case res.Disposition.Failure():
		failed = 1
	case x.latency == 0:
		x.latency = res.FirstEvent
	case res.FirstEvent > 0:
		x.latency += time.Duration(smoothing * float64(res.FirstEvent-x.latency))
	}
	x.failures += smoothing * (failed - x.failures)
}

func keyOf(c policy.Candidate) string { return c.Provider + "/" + c.Key }

package caddymodule

import (
	"slices"
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
	keys       map[keyName]int // attempts in flight
	scopes     map[string]int64
	rates      map[rateKey]*rate
	swept      int // how many rates were left when idle ones were last removed
	candidates map[string]*experience
}

// A keyName names a key. It costs nothing to make and to compare, which is done
// for every candidate of every request; keyOf is its text.
type keyName struct{ provider, key string }

func keyNameOf(c policy.Candidate) keyName { return keyName{c.Provider, c.Key} }

func keyOf(c policy.Candidate) string { return c.Provider + "/" + c.Key }

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
		keys:  make(map[keyName]int), scopes: make(map[string]int64), rates: make(map[rateKey]*rate),
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
	described := slices.Clone(candidates)
	n := 0
	for i := range described {
		n += len(described[i].Scopes)
	}
	all := make([]policy.Scope, 0, n) // of all candidates, one after the other
	for i := range described {
		c, from := &described[i], len(all)
		all = append(all, c.Scopes...)
		c.Scopes = slices.Clip(all[from:])
		if from == len(all) {
			c.Scopes = nil
		}
	}
	scopes := slices.Clone(requestScopes)

	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Since(f.start)
	for i := range described {
		c := &described[i]
		c.Load.InFlight = f.keys[keyNameOf(*c)]
		if x := f.candidates[c.ID]; x != nil {
			c.Load.Latency, c.Load.Failures = x.latency, x.failures
		}
	}
	f.useLocked(now, all)
	f.useLocked(now, scopes)
	return described, scopes
}

// useLocked sets how much of each of scopes is used, until when.
func (f *facts) useLocked(now time.Duration, scopes []policy.Scope) {
	for i := range scopes {
		s := &scopes[i]
		if s.Kind == policy.ScopeConcurrency {
			s.Used = f.scopes[s.ID]
			continue
		}
		s.Used, s.Resets = 0, time.Time{}
		if r := f.rates[rateKeyOf(*s)]; r != nil {
			if r.expire(now, s.Window); len(r.slots) > 0 {
				s.Used, s.Resets = max(r.total, 0), f.start.Add(r.resets(s.Window))
			}
		}
	}
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

package caddymodule

import (
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A hold is what a request that runs under a lease takes, as the facts count
// it. It is used by one goroutine at a time; the nil hold takes nothing.
type hold struct {
	facts     *facts
	candidate policy.Candidate
	scopes    []policy.Scope // of the candidate and of the request
	taken     []int64        // of each of scopes that is a rate
	at        time.Duration
}

// begin counts a request that runs on c, until the hold ends.
func (f *facts) begin(c policy.Candidate, req *policy.Request) *hold {
	h := &hold{facts: f, candidate: c, scopes: slices.Concat(c.Scopes, req.Scopes)}
	h.taken = make([]int64, len(h.scopes))
	f.mu.Lock()
	defer f.mu.Unlock()
	h.at = time.Since(f.start)
	h.runLocked(1)
	for i, s := range h.scopes {
		if s.Kind == policy.ScopeConcurrency {
			continue
		}
		r := f.rates[rateKeyOf(s)]
		if r == nil {
			r = new(rate)
			f.rates[rateKeyOf(s)] = r
		}
		h.taken[i] = s.Amount(req)
		r.expire(h.at, s.Window)
		r.add(h.at, s.Window, h.taken[i])
	}
	f.sweepLocked(h.at)
	return h
}

// runLocked counts n requests more that run on the key and under the scopes.
func (h *hold) runLocked(n int) {
	f, key := h.facts, keyNameOf(h.candidate)
	if f.keys[key] += n; f.keys[key] == 0 {
		delete(f.keys, key)
	}
	for _, s := range h.scopes {
		if s.Kind != policy.ScopeConcurrency {
			continue
		}
		if f.scopes[s.ID] += int64(n); f.scopes[s.ID] == 0 {
			delete(f.scopes, s.ID)
		}
	}
}

// end ends the hold. Of tokens, what the request did not use is given back, if
// that is known; requests stay counted. Only the first end or undo counts.
func (h *hold) end(usage *policy.Usage) {
	h.close(func(s policy.Scope, taken int64) int64 {
		if s.Kind == policy.ScopeTokens && usage != nil {
			return usage.Total()
		}
		return taken
	})
}

// undo ends the hold as if it had never been.
func (h *hold) undo() {
	h.close(func(policy.Scope, int64) int64 { return 0 })
}

// close ends the hold and corrects what it took of each rate to what it used.
func (h *hold) close(used func(s policy.Scope, taken int64) int64) {
	if h == nil || h.facts == nil {
		return
	}
	f := h.facts
	f.mu.Lock()
	defer f.mu.Unlock()
	h.runLocked(-1)
	for i, s := range h.scopes {
		if s.Kind == policy.ScopeConcurrency {
			continue
		}
		if r := f.rates[rateKeyOf(s)]; r != nil {
			r.add(h.at, s.Window, used(s, h.taken[i])-h.taken[i])
		}
	}
	h.facts = nil
}

// sweepLocked removes rates of which nothing is counted any more, such as those
// of callers who have left, whenever their number has doubled.
func (f *facts) sweepLocked(now time.Duration) {
	if len(f.rates) <= 2*f.swept+100 {
		return
	}
	for key, r := range f.rates {
		if r.expire(now, key.window); len(r.slots) == 0 {
			delete(f.rates, key)
		}
	}
	f.swept = len(f.rates)
}

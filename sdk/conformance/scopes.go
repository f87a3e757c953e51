package conformance

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/usherproxy/usher/policy"
)

// Scopes returns the checks of a [policy.Admitter] that enforces the limits of
// the scopes that requests carry, of all kinds. Each check gets an instance of
// its own from build. An admitter with a limit of its own must have room for 50.
func Scopes(build func(t T) policy.Admitter) []Check {
	return inRooms(build, []roomCheck{
		{"no concurrency limit is ever passed", holdsAllLimits},
		{"the next candidate serves when the first is full", takesTheNextCandidate},
		{"a waiting request takes whichever candidate is free first", waitsForAnyCandidate},
		{"a rejected request holds nothing", holdsNothingWhenRejected},
		{"a waiting request that leaves holds nothing", holdsNothingAfterLeaving},
		{"a raised limit holds from the next request on", obeysRaisedLimits},
		{"a lowered limit holds from the next request on", obeysLoweredLimits},
		{"scopes of one ID and different kinds are different", tellsKindsApart},
		{"requests of a window do not come back", countsRequests},
		{"tokens are reserved and settled", settlesTokens},
		{"unknown usage stays spent", keepsUnknownUsageSpent},
		{"more usage than was reserved is spent", spendsOverrun},
	})
}

func holdsAllLimits(t T, r *room) {
	fleet := r.scope("fleet", 7)
	callers := []policy.Scope{r.scope("caller:a", 2), r.scope("caller:b", 3), r.scope("caller:c", 4)}
	keys := []policy.Candidate{
		candidate("k1", r.scope("key:k1", 1)),
		candidate("k2", r.scope("key:k2", 2), r.scope("model:m", 3)),
		candidate("k3", r.scope("key:k3", 4), r.scope("model:m", 3)),
	}
	running := newTally(append(callers, fleet), keys...)
	var clients sync.WaitGroup
	for range 50 {
		clients.Go(func() {
			for range 10 {
				req := r.ask(r.request(fleet, callers[rand.IntN(len(callers))]), someOf(keys)...)
				a := r.admit(t.Context(), t, req)
				if a.err != nil {
					continue
				}
				held := append(req.Candidates[a.lease.Candidate()].Scopes, req.Request.Scopes...)
				running.add(t, held, 1)
				hold()
				running.add(t, held, -1)
				release(t, a.lease)
			}
		})
	}
	waitFor(t, &clients, "concurrent requests")
	lease := r.admitted(t, r.ask(r.request(fleet), keys[0]), "all leases were released")
	release(t, lease)
}

// someOf returns at least one of candidates, in any order.
func someOf(candidates []policy.Candidate) []policy.Candidate {
	some := make([]policy.Candidate, 0, len(candidates))
	for _, i := range rand.Perm(len(candidates))[:1+rand.IntN(len(candidates))] {
		some = append(some, candidates[i])
	}
	return some
}

// A tally counts what holds each scope.
type tally map[string]*atomic.Int64

func newTally(scopes []policy.Scope, candidates ...policy.Candidate) tally {
	t := tally{}
	for _, c := range candidates {
		scopes = append(scopes, c.Scopes...)
	}
	for _, s := range scopes {
		t[s.ID] = new(atomic.Int64)
	}
	return t
}

func (c tally) add(t T, scopes []policy.Scope, n int64) {
	for _, s := range scopes {
		if now := c[s.ID].Add(n); now > s.Limit {
			t.Errorf("%d requests hold scope %s; its limit is %d", now, s.ID, s.Limit)
		}
	}
}

func takesTheNextCandidate(t T, r *room) {
	k1, k2 := candidate("k1", r.scope("key:k1", 1)), candidate("k2", r.scope("key:k2", 1))
	ask := func() *policy.AdmitRequest { return r.ask(r.request(), k1, k2) }
	first := r.admitted(t, ask(), "nothing runs")
	second := r.admitted(t, ask(), "the second candidate is free")
	if first.Candidate() != 0 || second.Candidate() != 1 {
		t.Errorf("leases on candidates %d and %d, want 0 and 1", first.Candidate(), second.Candidate())
	}
	r.rejected(t, ask(), "both candidates are full")
	release(t, first)
	again := r.admitted(t, ask(), "the first candidate is free again")
	if again.Candidate() != 0 {
		t.Errorf("a lease on candidate %d, want 0: it is free again", again.Candidate())
	}
	release(t, second, again)
}

func waitsForAnyCandidate(t T, r *room) {
	candidates := []policy.Candidate{candidate("k1", r.scope("key:k1", 1)), candidate("k2", r.scope("key:k2", 1))}
	leases := make([]policy.Lease, 2)
	for i := range leases {
		leases[i] = r.admitted(t, r.ask(r.request(), candidates...), "one candidate is free")
	}
	for _, free := range []int{1, 0, 0, 1} {
		waiting := r.wait(t.Context(), t, r.ask(r.request(), candidates...))
		release(t, leases[free])
		leases[free] = gets(t, waiting, "a request that waits for two candidates")
		if got := leases[free].Candidate(); got != free {
			t.Fatalf("a lease on candidate %d, want %d: only that one is free", got, free)
		}
	}
	release(t, leases...)
}

func holdsNothingWhenRejected(t T, r *room) {
	full, free := r.scope("full", 1), r.scope("free", 1)
	rate := r.window("rate", policy.ScopeRequests, 1)
	holder := r.admitted(t, r.ask(r.request(full), candidate("k1")), "nothing runs")
	for range 10 {
		r.rejected(t, r.ask(r.request(free, rate, full), candidate("k1")), "one of its scopes is full")
		r.rejected(t, r.ask(r.request(free, rate), candidate("k1", full)), "its candidate is full")
	}
	release(t, holder, r.admitted(t, r.ask(r.request(free, rate), candidate("k1")), "only rejected requests asked for these scopes"))
}

func holdsNothingAfterLeaving(t T, r *room) {
	full, free := r.scope("full", 1), r.scope("free", 1)
	rate := r.window("rate", policy.ScopeRequests, 1)
	holder := r.admitted(t, r.ask(r.request(full), candidate("k1")), "nothing runs")
	ctx, leave := context.WithCancel(t.Context())
	waiting := r.wait(ctx, t, r.ask(r.request(free, rate, full), candidate("k1")))
	leave()
	if a := receive(t, waiting, "a request whose caller left"); a.err == nil {
		t.Fatalf("admitted, although one of its scopes is full")
	}
	release(t, holder, r.admitted(t, r.ask(r.request(free, rate), candidate("k1")), "the only request in line has left"))
}

func obeysRaisedLimits(t T, r *room) {
	ask := func(limit int64) *policy.AdmitRequest {
		return r.ask(r.request(r.scope("fleet", limit)), candidate("k1"))
	}
	first := r.admitted(t, ask(1), "nothing runs")
	r.rejected(t, ask(1), "the limit is 1")
	second := r.admitted(t, ask(2), "the limit is 2 and one runs")
	r.rejected(t, ask(2), "the limit is 2")
	release(t, first, second)
}

func obeysLoweredLimits(t T, r *room) {
	ask := func(limit int64) *policy.AdmitRequest {
		return r.ask(r.request(r.scope("fleet", limit)), candidate("k1"))
	}
	first := r.admitted(t, ask(2), "nothing runs")
	second := r.admitted(t, ask(2), "the limit is 2 and one runs")
	r.rejected(t, ask(1), "the limit is 1 and two run")
	release(t, first)
	r.rejected(t, ask(1), "the limit is 1 and one runs")
	release(t, second)
	release(t, r.admitted(t, ask(1), "nothing runs"))
}

func tellsKindsApart(t T, r *room) {
	concurrency := r.scope("x", 1)
	requests, tokens := r.window("x", policy.ScopeRequests, 1), r.window("x", policy.ScopeTokens, 1)
	longer := requests
	longer.Window *= 2
	var leases []policy.Lease
	for _, s := range []policy.Scope{concurrency, requests, tokens, longer} {
		leases = append(leases, r.admitted(t, r.ask(r.request(s), candidate("k1")), "this scope is free"))
		r.rejected(t, r.ask(r.request(s), candidate("k1")), "this scope is full")
	}
	release(t, leases...)
}

func countsRequests(t T, r *room) {
	rate := r.window("rate", policy.ScopeRequests, 3)
	for range 3 {
		release(t, r.admitted(t, r.ask(r.request(rate), candidate("k1")), "the window has requests left"))
	}
	r.rejected(t, r.ask(r.request(rate), candidate("k1")), "the window's requests are used up")
	r.rejected(t, r.ask(r.request(), candidate("k1", rate)), "the window's requests are used up")
	release(t, r.admitted(t, r.ask(r.request(), candidate("k1", rate), candidate("k2")), "the second candidate has no limit"))
}

// tokens returns a request for n tokens of scope s.
func (r *room) tokens(s policy.Scope, n int64) *policy.AdmitRequest {
	req := r.request(s)
	req.InputTokens, req.MaxOutputTokens = n/2, n-n/2
	return r.ask(req, candidate("k1"))
}

func used(n int64) policy.Outcome {
	return policy.Outcome{Disposition: policy.OK, Usage: &policy.Usage{InputTokens: n / 2, OutputTokens: n - n/2}}
}

func settlesTokens(t T, r *room) {
	s := r.window("tokens", policy.ScopeTokens, 1000)
	lease := r.admitted(t, r.tokens(s, 600), "no token is used")
	r.rejected(t, r.tokens(s, 600), "600 of 1000 tokens are reserved")
	releaseWith(t, lease, used(100))
	lease = r.admitted(t, r.tokens(s, 600), "100 of 1000 tokens are used")
	releaseWith(t, lease, policy.Outcome{Disposition: policy.ConnectFailed, Usage: &policy.Usage{}})
	lease = r.admitted(t, r.tokens(s, 900), "100 of 1000 tokens are used")
	r.rejected(t, r.tokens(s, 1), "all tokens are used or reserved")
	releaseWith(t, lease, used(900))
	r.rejected(t, r.tokens(s, 1), "all tokens are used")
}

func keepsUnknownUsageSpent(t T, r *room) {
	s := r.window("tokens", policy.ScopeTokens, 1000)
	releaseWith(t, r.admitted(t, r.tokens(s, 600), "no token is used"), policy.Outcome{Disposition: policy.ClientGone})
	r.rejected(t, r.tokens(s, 600), "600 of 1000 tokens count as used")
	releaseWith(t, r.admitted(t, r.tokens(s, 400), "600 of 1000 tokens count as used"), used(400))
}

func spendsOverrun(t T, r *room) {
	s := r.window("tokens", policy.ScopeTokens, 1000)
	releaseWith(t, r.admitted(t, r.tokens(s, 100), "no token is used"), used(950))
	r.rejected(t, r.tokens(s, 100), "950 of 1000 tokens are used")
	releaseWith(t, r.admitted(t, r.tokens(s, 50), "950 of 1000 tokens are used"), used(5000))
	r.rejected(t, r.tokens(s, 1), "more tokens are used than the limit")
}

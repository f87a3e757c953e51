package keys_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/usherproxy/usher/plugins/keys"
	"github.com/usherproxy/usher/policy"
)

// A world is a site with random candidates and a random history.
type world struct {
	*site
	*rand.Rand
}

func newWorld(t *testing.T, seed uint64, config string) world {
	t.Helper()
	w := world{newSite(t, config), rand.New(rand.NewPCG(seed, 7))}
	for i := range 1 + w.IntN(8) {
		c := candidate(fmt.Sprintf("p%d/k%d/m%d", w.IntN(2), w.IntN(3), i))
		c.Priority, c.Weight = w.IntN(3)-1, w.IntN(4)
		c.Disabled = w.IntN(8) == 0
		c.ContextTokens = int64(w.IntN(3) * 100)
		c.Load.InFlight = w.IntN(5)
		c.Scopes = w.scopes("provider:"+c.Provider, "key:"+c.Provider+"/"+c.Key, "model:m")
		w.candidates = append(w.candidates, c)
	}
	for i := range w.IntN(40) {
		w.result(i)
		w.wait(time.Duration(w.IntN(10)) * time.Second)
	}
	return w
}

func (w world) scopes(ids ...string) []policy.Scope {
	var scopes []policy.Scope
	for _, id := range ids {
		if w.IntN(3) == 0 {
			kind := policy.ScopeKinds()[w.IntN(3)]
			scopes = append(scopes, policy.Scope{ID: id, Kind: kind, Limit: int64(1 + w.IntN(4)), Used: int64(w.IntN(4))})
		}
	}
	return scopes
}

// result observes something, however absurd.
func (w world) result(i int) {
	ds := append(policy.Dispositions(), policy.Overloaded, policy.Overloaded, policy.Timeout, "")
	res := policy.AttemptResult{
		RequestID:   fmt.Sprint(w.IntN(i + 1)),
		Candidate:   w.candidates[w.IntN(len(w.candidates))],
		Format:      []string{"openai", "anthropic", ""}[w.IntN(3)],
		Disposition: ds[w.IntN(len(ds))],
		Status:      []int{0, 401, 403, 429, 500}[w.IntN(5)],
		Duration:    time.Duration(w.IntN(120)-10) * time.Second,
		FirstEvent:  time.Duration(w.IntN(20)-5) * time.Second,
		EndedAt:     w.now.Add(time.Duration(w.IntN(20)-15) * time.Second),
	}
	switch w.IntN(6) {
	case 0:
		res.Until = time.Unix(w.Int64()>>uint(w.IntN(60)), 0)
	case 1:
		res.EndedAt = time.Time{}
	case 2:
		res.Until = w.now.Add(time.Duration(w.IntN(100)-20) * time.Second)
	}
	w.Observe(w.t.Context(), res)
}

func (w world) request() policy.Request {
	return policy.Request{
		ID: fmt.Sprint(w.IntN(50)), Format: "openai", InputTokens: int64(w.IntN(250)),
		Scopes: w.scopes("caller:alice", "group:research", "fleet"),
	}
}

// forWorlds runs check over many worlds and all orders.
func forWorlds(t *testing.T, check func(t *testing.T, w world)) {
	t.Parallel()
	for _, order := range []string{"priority", "affinity health weighted", "least_loaded", "least_recently_used", "quota_balanced soonest_reset latency cost"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(500) {
				check(t, newWorld(t, seed, fmt.Sprintf(`{"order": %q}`, order)))
				if t.Failed() {
					t.Fatalf("in the world of seed %d", seed)
				}
			}
		})
	}
}

// Invariant 1.
func TestVerdictsDoNotDependOnTheDice(t *testing.T) {
	absurd := []keys.Seed{0, 1, 1 << 62, 1<<64 - 1, keys.Seed(time.Now().UnixNano())}
	forWorlds(t, func(t *testing.T, w world) {
		req := w.request()
		var first []policy.Verdict
		for _, seed := range absurd {
			w.plugin.Dice = func() keys.Seed { return seed }
			got := w.ask(req)
			slices.SortFunc(got, func(a, b policy.Verdict) int { return w.index(a) - w.index(b) })
			if first == nil {
				first = got
			} else if !reflect.DeepEqual(got, first) {
				t.Errorf("seed %d:\ngot  %v\nwant %v", seed, got, first)
			}
		}
	})
}

func (w world) index(v policy.Verdict) int {
	return slices.IndexFunc(w.candidates, func(c policy.Candidate) bool { return c.ID == v.Candidate })
}

// Invariant 2.
func TestRankingIsInOrder(t *testing.T) {
	forWorlds(t, func(t *testing.T, w world) {
		verdicts := w.ask(w.request())
		if err := (policy.Selection{Verdicts: verdicts}).Check(w.candidates); err != nil {
			t.Error(err)
		}
		for i, v := range verdicts {
			if (v.Status == policy.Eligible) != (v.Reason == "") || (v.Status == policy.Busy) != v.Reason.Capacity() {
				t.Errorf("%v: status and reason do not agree", v)
			}
			if i > 0 && rankOf(verdicts[i-1].Status) > rankOf(v.Status) {
				t.Errorf("%s comes before %s", verdicts[i-1].Status, v.Status)
			}
			if i > 0 && verdicts[i-1].Status == v.Status && v.Status != policy.Skipped {
				before, after := w.candidates[w.index(verdicts[i-1])], w.candidates[w.index(v)]
				if before.Priority > after.Priority {
					t.Errorf("priority %d comes before %d", before.Priority, after.Priority)
				}
				if before.Priority == after.Priority && before.Weight == 0 && after.Weight > 0 {
					t.Error("weight 0 comes before a weight")
				}
			}
		}
	})
}

func rankOf(s policy.Status) int {
	return slices.Index([]policy.Status{policy.Eligible, policy.Busy, policy.Skipped}, s)
}

// Invariant 4.
func TestPastInstantsNeverBlock(t *testing.T) {
	forWorlds(t, func(t *testing.T, w world) {
		for range 5 {
			for _, v := range w.ask(w.request()) {
				if !v.Until.IsZero() && !v.Until.After(w.now) {
					t.Errorf("%v, but it is %v", v, w.now)
				}
			}
			w.wait(time.Duration(w.IntN(300)) * time.Second)
		}
	})
}

// Whatever happened, a month later a candidate that is configured to serve
// serves a request that has nothing else.
func TestEverythingComesBack(t *testing.T) {
	forWorlds(t, func(t *testing.T, w world) {
		w.wait(31*24*time.Hour + time.Minute)
		all := w.candidates
		for _, c := range all {
			if c.Disabled {
				continue
			}
			c.Scopes = nil
			w.candidates = []policy.Candidate{c}
			w.wait(2 * time.Minute)
			if v := w.ask(policy.Request{ID: "alone"})[0]; v.Status != policy.Eligible {
				t.Errorf("%v", v)
			}
		}
	})
}

// Invariant 6. The one exception is the probe, which leads.
func TestLeastLoadedNeverPutsTheBusierFirst(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		w := newWorld(t, seed, `{"order": "least_loaded", "breaker": {"failures": 0}, "invalid_retry": "1000h", "invalid_retry_max": "1000h"}`)
		for i := range w.candidates {
			w.candidates[i].Scopes = nil
			w.candidates[i].Weight = min(w.candidates[i].Weight, 1)
		}
		verdicts := w.ask(w.request())
		for i, v := range verdicts[1:] {
			before, after := w.candidates[w.index(verdicts[i])], w.candidates[w.index(v)]
			same := verdicts[i].Status == v.Status && v.Status != policy.Skipped &&
				before.Priority == after.Priority && before.Weight == after.Weight
			if same && before.Load.InFlight > after.Load.InFlight {
				t.Fatalf("seed %d: %d in flight come before %d", seed, before.Load.InFlight, after.Load.InFlight)
			}
		}
	}
}

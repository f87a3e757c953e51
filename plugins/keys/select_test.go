package keys_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/policy"
)

// picks counts which key comes first, over n requests.
func (s *site) picks(n int) map[string]int {
	s.t.Helper()
	counts := map[string]int{}
	for range n {
		counts[s.first(policy.Request{ID: s.newID()})]++
	}
	return counts
}

// first returns the key that a request would go to.
func (s *site) first(req policy.Request) string {
	s.t.Helper()
	for _, v := range s.ask(req) {
		if v.Status != policy.Skipped {
			return s.candidate(v.Candidate).Key
		}
	}
	return ""
}

func TestWeightsAreMet_B69(t *testing.T) {
	t.Parallel()
	const picks = 10_000
	for name, c := range map[string]struct {
		weights  []int
		disabled []string
		want     map[string]float64
	}{
		"7, 3, 0":                       {[]int{7, 3, 0}, nil, map[string]float64{"k1": 0.7, "k2": 0.3}},
		"7, 3, 0 without the first":     {[]int{7, 3, 0}, []string{"k1"}, map[string]float64{"k2": 1}},
		"7, 3, 0 without the first two": {[]int{7, 3, 0}, []string{"k1", "k2"}, map[string]float64{"k3": 1}},
		"all zero":                      {[]int{0, 0, 0, 0}, nil, map[string]float64{"k1": 0.25, "k2": 0.25, "k3": 0.25, "k4": 0.25}},
		"all equal":                     {[]int{5, 5}, nil, map[string]float64{"k1": 0.5, "k2": 0.5}},
		"1000 to 1":                     {[]int{1, 1000}, nil, map[string]float64{"k1": 1. / 1001, "k2": 1000. / 1001}},
		"of the rest":                   {[]int{1, 2, 3, 4}, []string{"k4"}, map[string]float64{"k1": 1. / 6, "k2": 2. / 6, "k3": 3. / 6}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, `{}`)
			for i, w := range c.weights {
				k := candidate(fmt.Sprint("k", i+1))
				k.Weight = w
				s.candidates = append(s.candidates, k)
			}
			for _, id := range c.disabled {
				s.candidate(id).Disabled = true
			}
			for id, n := range s.picks(picks) {
				if share := float64(n) / picks; math.Abs(share-c.want[id]) > 0.02 {
					t.Errorf("%s was picked %.3f of the time, want %.3f", id, share, c.want[id])
				}
			}
		})
	}
}

// The shares of the upper tier, what of it is the last resort, and the lower
// tier, one after the other.
func TestTiersOfWeights_B70(t *testing.T) {
	t.Parallel()
	s := newSite(t, `{}`, "k1", "k2", "k3", "k4")
	s.candidate("k1").Weight, s.candidate("k2").Weight, s.candidate("k3").Weight = 7, 3, 0
	s.candidate("k4").Priority = 1
	got := s.picks(2000)
	if n := got["k1"]; n < 1320 || n > 1480 || n+got["k2"] != 2000 {
		t.Errorf("picks %v, want 7 to 3", got)
	}
	s.candidate("k1").Disabled, s.candidate("k2").Disabled = true, true
	if got := s.picks(200); got["k3"] != 200 {
		t.Errorf("without k1 and k2: picks %v, want k3 only", got)
	}
	s.candidate("k3").Disabled = true
	if got := s.picks(20); got["k4"] != 20 {
		t.Errorf("without the upper tier: picks %v, want k4 only", got)
	}
	s.candidate("k4").Disabled = true
	if got := s.first(policy.Request{ID: "x"}); got != "" {
		t.Errorf("without any: picks %s", got)
	}
}

func TestPriorityComesFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t, `{}`, "spare", "k1", "k2")
	s.candidate("spare").Priority = 1
	s.candidate("spare").Weight = 1000
	s.candidate("k2").Weight = 0
	if got := s.picks(500); got["k1"] != 500 {
		t.Errorf("picks %v, want k1 only", got)
	}
	s.candidate("k1").Disabled = true
	if got := s.picks(500); got["k2"] != 500 {
		t.Errorf("without k1: picks %v, want k2 only", got)
	}
	s.candidate("k2").Disabled = true
	if got := s.picks(500); got["spare"] != 500 {
		t.Errorf("without k1 and k2: picks %v, want spare only", got)
	}
}

// What may serve now comes before what must be waited for.
func TestEligibleComesBeforeBusy(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "k1", "k2", "k3", "k4")
	full := []policy.Scope{{ID: "key:p/k", Kind: policy.ScopeConcurrency, Limit: 2, Used: 2}}
	s.candidate("k1").Scopes = full
	s.candidate("k2").Scopes, s.candidate("k2").Priority = full, -1
	s.candidate("k3").Priority = 7
	s.candidate("k4").Disabled = true
	s.expect("k3 eligible", "k2 busy key_concurrency 2/2", "k1 busy key_concurrency 2/2", "k4 skipped disabled")
}

func TestFixedOrderIsThatOfTheConfiguration(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "k3", "k1", "k2")
	s.candidate("k2").Weight = 9
	s.candidate("k3").Load.InFlight = 9
	for range 100 {
		s.expect("k3 eligible", "k1 eligible", "k2 eligible")
	}
}

func TestLeastLoaded(t *testing.T) {
	t.Parallel()
	limit := func(used, limit int64) []policy.Scope {
		return []policy.Scope{{ID: "key:p/k", Kind: policy.ScopeConcurrency, Limit: limit, Used: used}}
	}
	for name, c := range map[string]struct {
		change func(s *site)
		want   []string
	}{
		"what runs": {func(s *site) {
			s.candidate("k1").Load.InFlight = 5
			s.candidate("k2").Load.InFlight = 1
			s.candidate("k3").Load.InFlight = 1
		}, []string{"k2", "k3"}},
		"what runs per weight": {func(s *site) {
			s.candidate("k1").Load.InFlight, s.candidate("k1").Weight = 30, 10
			s.candidate("k2").Load.InFlight = 4
			s.candidate("k3").Load.InFlight = 4
		}, []string{"k1"}},
		"the part of the limit": {func(s *site) {
			s.candidate("k1").Scopes = limit(30, 100)
			s.candidate("k2").Scopes = limit(1, 2)
			s.candidate("k3").Scopes = limit(31, 100)
		}, []string{"k1"}},
		"the limit that is used most": {func(s *site) {
			s.candidate("k1").Scopes = append(limit(1, 10), policy.Scope{ID: "key:p/k", Kind: policy.ScopeRequests, Limit: 100, Used: 90})
			s.candidate("k2").Scopes = limit(5, 10)
			s.candidate("k3").Scopes = limit(8, 10)
		}, []string{"k2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, `{"order": "least_loaded"}`, "k1", "k2", "k3")
			c.change(s)
			got := s.picks(1000)
			for _, key := range c.want {
				if got[key] < 900/len(c.want) {
					t.Errorf("picks %v, want %v about as often, and no other", got, c.want)
				}
			}
		})
	}
}

func TestSessionStaysOnItsKey(t *testing.T) {
	t.Parallel()
	s := newSite(t, `{}`, "k1", "k2", "k3", "k4")
	s.candidate("k4").Weight = 0
	homes, counts := map[string]string{}, map[string]int{}
	for i := range 3000 {
		session := fmt.Sprint("session ", i)
		homes[session] = s.first(policy.Request{ID: s.newID(), Affinity: session})
		counts[homes[session]]++
	}
	for _, key := range []string{"k1", "k2", "k3"} {
		if n := counts[key]; n < 900 || n > 1100 {
			t.Errorf("%s has %d of 3000 sessions, want a third", key, n)
		}
	}

	s.end("k1", policy.RateLimited, until(s.now.Add(time.Minute)))
	other := newSite(t, `{}`, "k4", "k3", "k2", "k1")
	other.candidate("k4").Weight = 0
	for session, home := range homes {
		got := s.first(policy.Request{ID: s.newID(), Affinity: session})
		if home != "k1" && got != home || got == "k1" {
			t.Fatalf("%s moved from %s to %s as k1 cools down", session, home, got)
		}
		if got := other.first(policy.Request{ID: s.newID(), Affinity: session}); got != home {
			t.Fatalf("%s is at %s on one replica and at %s on another", session, home, got)
		}
	}
	s.wait(time.Minute)
	for session, home := range homes {
		if got := s.first(policy.Request{ID: s.newID(), Affinity: session}); got != home {
			t.Fatalf("%s did not come back from %s to %s", session, got, home)
		}
	}

	s.configure(`{"order": "weighted"}`)
	counts = map[string]int{}
	for range 1000 {
		counts[s.first(policy.Request{ID: s.newID(), Affinity: "session"})]++
	}
	if len(counts) != 3 {
		t.Errorf("without affinity: picks %v, want all but k4", counts)
	}
}

// A small context gives way to a larger one, but an estimate alone turns no
// request away.
func TestContextEstimateOnlyPrefers(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "small", "large")
	s.candidate("small").ContextTokens = 100
	s.candidate("large").ContextTokens = 1000
	ask := func(tokens int64) string {
		var got strings.Builder
		for _, v := range s.ask(policy.Request{ID: s.newID(), InputTokens: tokens}) {
			got.WriteString(s.candidate(v.Candidate).Key + " " + describe(v.Status, v.Why) + "; ")
		}
		return got.String()
	}
	for _, c := range []struct {
		tokens int64
		want   string
	}{
		{100, "small eligible; large eligible; "},
		{101, "large eligible; small skipped context_too_small 101/100; "},
		{1001, "small eligible; large eligible; "},
	} {
		if got := ask(c.tokens); got != c.want {
			t.Errorf("%d tokens: %s, want %s", c.tokens, got, c.want)
		}
	}
	s.openAndWait("small")
	if got, want := ask(500), "large eligible; small skipped context_too_small 500/100; "; got != want {
		t.Errorf("small is due: %s, want %s", got, want)
	}
	if got, want := ask(50), "small eligible; large eligible; "; got != want {
		t.Errorf("small is due and large enough: %s, want %s", got, want)
	}
	s.endFor(fmt.Sprintf("r%d", s.requests), "small", policy.OK)
	s.candidate("large").Scopes = []policy.Scope{{ID: "model:m", Kind: policy.ScopeConcurrency, Limit: 1, Used: 1}}
	if got, want := ask(500), "large busy concurrency 1/1; small skipped context_too_small 500/100; "; got != want {
		t.Errorf("large is busy: %s, want %s", got, want)
	}
	s.candidate("large").Disabled = true
	s.candidate("large").Scopes = nil
	s.openAndWait("small")
	if got, want := ask(500), "small eligible; large skipped disabled; "; got != want {
		t.Errorf("large is disabled: %s, want %s", got, want)
	}
	if got, want := ask(500), "small skipped circuit_open (probe) 5/5 until 1000150; large skipped disabled; "; got != want {
		t.Errorf("small is probed: %s, want %s", got, want)
	}
}

func TestNoCandidates(t *testing.T) {
	t.Parallel()
	newSite(t, `{}`).expect()
}

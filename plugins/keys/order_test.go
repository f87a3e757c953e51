package keys_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/plugins/keys"
	"github.com/usherproxy/usher/policy"
)

// expectOrder checks the order in which keys are ranked.
func (s *site) expectOrder(req policy.Request, want ...string) {
	s.t.Helper()
	var got []string
	for _, v := range s.ask(req) {
		if v.Status != policy.Skipped {
			got = append(got, s.candidate(v.Candidate).Key)
		}
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("ranked %v, want %v", got, want)
	}
}

// Each word ranks what it is about, and leaves to the next what it finds equal.
func TestWords(t *testing.T) {
	t.Parallel()
	quota := func(key string, used float64, resets time.Duration) func(*site) {
		return func(s *site) {
			s.operate("set-windows", fmt.Sprintf(`{"provider": "p", "key": %q, "windows": [{"name": "weekly", "used": %v, "resets": %q}]}`,
				key, used, s.now.Add(resets).Format(time.RFC3339)))
		}
	}
	load := func(key string, load policy.Load) func(*site) {
		return func(s *site) { s.candidate(key).Load = load }
	}
	price := func(key string, input, output float64) func(*site) {
		return func(s *site) { s.candidate(key).Price = policy.Price{Input: input, Output: output} }
	}
	for name, c := range map[string]struct {
		config string
		given  []func(*site)
		want   []string
	}{
		"health: failures": {
			`{"order": "health priority"}`,
			[]func(*site){load("k1", policy.Load{Failures: 0.9}), load("k2", policy.Load{Failures: 0.3}), load("k3", policy.Load{Failures: 0.1})},
			[]string{"k3", "k2", "k1"},
		},
		"health: latency": {
			`{"order": "health priority"}`,
			[]func(*site){load("k1", policy.Load{Latency: 2 * time.Minute}), load("k2", policy.Load{Latency: 3 * time.Second}), load("k3", policy.Load{Latency: 10 * time.Second})},
			[]string{"k2", "k3", "k1"},
		},
		"health: an operator's word": {
			`{"order": "health priority"}`,
			[]func(*site){func(s *site) { s.operate("set-health", `{"provider": "p", "key": "k1", "health": 0.4}`) }},
			[]string{"k2", "k3", "k1"},
		},
		"health: no difference": {
			`{"order": "health priority"}`,
			[]func(*site){load("k1", policy.Load{Failures: 0.19, Latency: time.Second})},
			[]string{"k1", "k2", "k3"},
		},
		"latency": {
			`{"order": "latency priority"}`,
			[]func(*site){load("k1", policy.Load{Latency: 900 * time.Millisecond}), load("k2", policy.Load{Latency: 600 * time.Millisecond}), load("k3", policy.Load{Latency: 300 * time.Millisecond})},
			[]string{"k3", "k2", "k1"},
		},
		"plan": {
			`{"order": "plan priority", "plans": ["free", "team"]}`,
			[]func(*site){
				func(s *site) { s.candidate("k1").Labels = map[string]string{"plan": "enterprise"} },
				func(s *site) { s.candidate("k2").Labels = map[string]string{"plan": "team"} },
				func(s *site) { s.candidate("k3").Labels = map[string]string{"plan": "free"} },
			},
			[]string{"k3", "k2", "k1"},
		},
		"quota": {
			`{"order": "quota_balanced priority"}`,
			[]func(*site){quota("k1", 0.8, time.Hour), quota("k2", 0.3, time.Hour)},
			[]string{"k3", "k2", "k1"},
		},
		"a quota that has reset": {
			`{"order": "quota_balanced priority"}`,
			[]func(*site){quota("k1", 0.8, -time.Hour), quota("k2", 0.3, time.Hour)},
			[]string{"k1", "k3", "k2"},
		},
		"reset": {
			`{"order": "soonest_reset priority"}`,
			[]func(*site){quota("k2", 0.1, 100*time.Hour), quota("k3", 0.1, time.Hour)},
			[]string{"k3", "k2", "k1"},
		},
		"cost": {
			`{"order": "cost priority"}`,
			[]func(*site){price("k2", 3, 15), price("k3", 2.5, 10)},
			[]string{"k3", "k2", "k1"},
		},
		"the first word first": {
			`{"order": "cost latency priority"}`,
			[]func(*site){
				price("k1", 2.5, 10), price("k2", 2.5, 10), price("k3", 1, 5),
				load("k1", policy.Load{Latency: 900 * time.Millisecond}), load("k2", policy.Load{Latency: 100 * time.Millisecond}), load("k3", policy.Load{Latency: time.Minute}),
			},
			[]string{"k3", "k2", "k1"},
		},
		"all of them, and nothing known": {
			`{"order": "affinity health least_recently_used plan quota_balanced soonest_reset latency cost least_loaded priority", "plans": ["free"]}`,
			nil,
			[]string{"k1", "k2", "k3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, c.config, "k1", "k2", "k3")
			s.plugin.Dice = func() keys.Seed { return 2 }
			for _, given := range c.given {
				given(s)
			}
			s.expectOrder(policy.Request{ID: "x", InputTokens: 1000}, c.want...)
		})
	}
}

func TestLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"least_recently_used", "least_recently_used cost"} {
		s := newSite(t, fmt.Sprintf(`{"order": %q}`, order), "k1", "k2", "k3", "k4")
		last := map[string]int{}
		for i := range 400 {
			s.wait(time.Second)
			key := s.first(policy.Request{ID: s.newID()})
			if since := i - last[key]; last[key] > 0 && since > 6 {
				t.Fatalf("%s: %s was not used for %d requests", order, key, since)
			}
			last[key] = i
		}
		if len(last) != 4 {
			t.Errorf("%s: used %v, want all four", order, last)
		}
	}
}

// A session stays where it was served last, though it began elsewhere.
func TestSessionStaysWhereItWasServed(t *testing.T) {
	t.Parallel()
	s := newSite(t, `{"order": "affinity least_loaded"}`, "k1", "k2", "k3")
	session := policy.Request{ID: "first", Affinity: "chat 7"}
	s.candidate("k1").Load.InFlight, s.candidate("k3").Load.InFlight = 1, 1
	s.expectFirst(session, "k2")
	s.endFor("first", "k2", policy.Overloaded)
	s.endFor("first", "k3", policy.OK)
	for i := range 5 {
		s.candidate("k3").Load.InFlight = i
		session.ID = s.newID()
		s.expectFirst(session, "k3")
	}
	s.end("k3", policy.RateLimited, until(s.now.Add(time.Minute)))
	s.expectFirst(session, "k2")
	s.wait(time.Minute)
	s.expectFirst(session, "k3")
	session.Model = "another"
	s.expectFirst(session, "k2")
	session.Model = ""
	s.candidate("k3").Priority = 1
	s.expectFirst(session, "k2")
	s.candidate("k3").Priority = 0
	s.wait(2 * time.Hour)
	s.expectFirst(session, "k2")
}

func (s *site) expectFirst(req policy.Request, want string) {
	s.t.Helper()
	if got := s.first(req); got != want {
		s.t.Errorf("goes to %s, want %s", got, want)
	}
}

// Who fared badly is asked now and then, so that it can show that it fares
// better.
func TestNobodyStarves(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"health", "latency", "affinity health weighted", "health least_loaded"} {
		s := newSite(t, fmt.Sprintf(`{"order": %q}`, order), "k1", "k2")
		s.candidate("k1").Load = policy.Load{Failures: 1, Latency: time.Hour}
		if got := s.picks(2000)["k1"]; got < 20 || got > 130 {
			t.Errorf("%s: the sick key is picked %d times of 2000, want about one in 32", order, got)
		}
	}
	s := newSite(t, `{}`)
	for i := range 200 {
		s.candidates = append(s.candidates, candidate(fmt.Sprint("k", i)))
	}
	if got := s.picks(4000); len(got) != 200 {
		t.Errorf("%d of 200 equal keys are used", len(got))
	}
}

// However many there are, all are ranked, in the order of their tiers, and the
// best exactly.
func TestManyCandidatesAreRanked(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		dice := rand.New(rand.NewPCG(seed, 3))
		s := newSite(t, `{"order": "least_loaded"}`)
		for i := range 33 + dice.IntN(400) {
			c := candidate(fmt.Sprint("k", i))
			c.Priority, c.Weight, c.Load.InFlight = dice.IntN(4), dice.IntN(2), dice.IntN(1000)
			c.Disabled = dice.IntN(10) == 0
			if dice.IntN(4) == 0 {
				c.Scopes = []policy.Scope{{ID: "key:p/" + c.Key, Kind: policy.ScopeConcurrency, Limit: 2, Used: 2}}
			}
			s.candidates = append(s.candidates, c)
		}
		verdicts := s.ask(policy.Request{ID: "x"})
		if err := (policy.Selection{Verdicts: verdicts}).Check(s.candidates); err != nil || len(verdicts) != len(s.candidates) {
			t.Fatalf("%d verdicts on %d candidates: %v", len(verdicts), len(s.candidates), err)
		}
		for i, v := range verdicts[1:] {
			before, after := verdicts[i], v
			a, b := s.candidate(before.Candidate), s.candidate(after.Candidate)
			tier := func(v policy.Verdict, c *policy.Candidate) string {
				if v.Status == policy.Skipped {
					return "9"
				}
				return fmt.Sprint(rankOf(v.Status), c.Priority, 1-c.Weight)
			}
			switch strings.Compare(tier(before, a), tier(after, b)) {
			case 1:
				t.Fatalf("seed %d: %v comes before %v", seed, before, after)
			case 0:
				if i < 31 && after.Status == policy.Eligible && a.Load.InFlight > b.Load.InFlight {
					t.Fatalf("seed %d: %d in flight come before %d at place %d", seed, a.Load.InFlight, b.Load.InFlight, i)
				}
			}
		}
	}
}

package keys_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/usherproxy/usher/policy"
)

const fixed = `{"order": "priority"}`

// statusOf returns what the site says of one candidate.
func (s *site) statusOf(id, request string) string {
	s.t.Helper()
	for _, v := range s.ask(policy.Request{ID: request}) {
		if v.Candidate == s.candidate(id).ID {
			v.Until = time.Time{}
			return describe(v.Status, v.Why)
		}
	}
	s.t.Fatalf("no verdict on %q", id)
	return ""
}

func TestBreakerOpensAfterFailuresInARow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tell func(*site)
		open bool
	}{
		"B52 four": {func(s *site) {
			for range 4 {
				s.end("k1", policy.Timeout)
			}
		}, false},
		"B52 five of all kinds": {func(s *site) {
			for _, d := range []policy.Disposition{policy.Overloaded, policy.UpstreamError, policy.ConnectFailed, policy.Timeout, policy.UpstreamError} {
				s.end("k1", d)
			}
		}, true},
		"five within the window": {func(s *site) {
			for range 5 {
				s.end("k1", policy.Overloaded)
				s.wait(15 * time.Second)
			}
			s.wait(-15 * time.Second)
		}, true},
		"five in more than the window": {func(s *site) {
			for range 5 {
				s.end("k1", policy.Overloaded)
				s.wait(16 * time.Second)
			}
			s.wait(-16 * time.Second)
		}, false},
		"a success between": {func(s *site) {
			for _, d := range []policy.Disposition{policy.Timeout, policy.Timeout, policy.OK, policy.Timeout, policy.Timeout, policy.Timeout} {
				s.end("k1", d)
				s.wait(time.Second)
			}
		}, false},
		"neutral ends between": {func(s *site) {
			for range 5 {
				s.end("k1", policy.ClientGone)
				s.end("k1", policy.ClientFault)
				s.end("k1", policy.ContextLength)
				s.end("k1", policy.Timeout)
			}
		}, true},
		"B50 neutral ends only": {func(s *site) {
			for range 30 {
				s.end("k1", policy.ClientGone)
				s.end("k1", policy.ClientFault)
				s.end("k1", policy.ContextLength)
				s.end("k1", policy.Denied)
			}
		}, false},
		"a long stream ends well between": {func(s *site) {
			for range 4 {
				s.end("k1", policy.Overloaded)
				s.wait(time.Second)
			}
			s.end("k1", policy.OK, took(time.Minute), firstEventAfter(time.Second))
			s.end("k1", policy.Overloaded)
		}, true},
		"a success with an absurd first event between": {func(s *site) {
			s.end("k1", policy.OK, took(time.Second), firstEventAfter(time.Hour))
			for range 5 {
				s.wait(time.Second)
				s.end("k1", policy.Overloaded)
			}
		}, true},
		"five errors of one request": {func(s *site) {
			for range 5 {
				s.endFor("same", "k1", policy.UpstreamError)
			}
		}, false},
		"B46 one request after the other on the second key": {func(s *site) {
			for range 5 {
				id := s.newID()
				s.endFor(id, "k2", policy.UpstreamError)
				s.endFor(id, "k1", policy.UpstreamError)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, fixed, "k1", "k2")
			c.tell(s)
			want := "eligible"
			if c.open {
				want = "skipped circuit_open 5/5"
			}
			if got := s.statusOf("k1", s.newID()); got != want {
				t.Errorf("k1 is %q, want %q", got, want)
			}
		})
	}
}

func TestBreakerIsPerKeyAndFormat(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "p/k1/m1", "p/k1/m2", "p/k2/m1", "q/k1/m1")
	s.openAndWait("p/k1/m1")
	s.wait(-time.Minute)
	for _, v := range s.ask(policy.Request{ID: "x"}) {
		if open := v.Status == policy.Skipped; open != strings.HasPrefix(v.Candidate, "p/k1/") {
			t.Errorf("%s is %s", v.Candidate, v.Status)
		}
	}
	for _, v := range s.ask(policy.Request{ID: "y", Format: "anthropic"}) {
		if v.Status != policy.Eligible {
			t.Errorf("format anthropic: %s is %s", v.Candidate, v.Status)
		}
	}
}

func TestBreakerCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	s := newSite(t, `{"breaker": {"failures": 0}}`, "k1")
	s.openAndWait("k1")
	s.wait(-time.Minute)
	s.expect("k1 eligible")

	s.configure(`{}`)
	s.openAndWait("k1")
	s.wait(-time.Minute)
	s.configure(`{"breaker": {"failures": 0}}`)
	s.expect("k1 eligible")
}

// The time doubles with each failed probe, up to open_max, and begins anew
// after a success.
func TestBreakerOpensForTwiceTheTimeAfterAFailedProbe(t *testing.T) {
	t.Parallel()
	s := newSite(t, `{"breaker": {"open": "10s", "open_max": "60s"}}`, "k1")
	opened := func(interval time.Duration) {
		t.Helper()
		until := s.ask(policy.Request{ID: s.newID()})[0].Until
		if d := until.Sub(s.now); d < interval/2 || d > interval {
			t.Errorf("open for %v, want %v to %v", d, interval/2, interval)
		}
		s.now = until
	}
	for range 5 {
		s.end("k1", policy.Timeout)
	}
	for _, interval := range []time.Duration{10, 20, 40, 60, 60} {
		opened(interval * time.Second)
		s.expectFor("probe", "k1 eligible")
		s.endFor("probe", "k1", policy.Timeout)
	}
	opened(time.Minute)
	s.expectFor("probe", "k1 eligible")
	s.endFor("probe", "k1", policy.OK)
	s.expect("k1 eligible")
	s.expect("k1 eligible")
	s.wait(time.Second)
	for range 5 {
		s.end("k1", policy.Timeout)
	}
	opened(10 * time.Second)
}

func TestProbe(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	for name, c := range map[string]struct {
		then func(*site) // after r was given the probe of k1
		want string      // of k1, for another request
	}{
		"is on its way":       {func(*site) {}, "skipped circuit_open (probe) 5/5"},
		"succeeds":            {func(s *site) { s.endFor("r", "k1", policy.OK) }, "eligible"},
		"fails":               {func(s *site) { s.endFor("r", "k1", policy.Overloaded) }, "skipped circuit_open 6/5"},
		"B48 is the caller's": {func(s *site) { s.endFor("r", "k1", policy.ClientFault) }, "eligible"},
		"B48 loses its caller": {func(s *site) {
			s.endFor("r", "k1", policy.ClientGone)
		}, "eligible"},
		"B48 is rate limited": {func(s *site) {
			s.endFor("r", "k1", policy.RateLimited, until(s.now.Add(time.Second)))
			s.wait(time.Second)
		}, "eligible"},
		"is never heard of": {func(s *site) { s.wait(minute) }, "eligible"},
		"is late but alone": {func(s *site) {
			s.wait(2 * minute)
			s.endFor("r", "k1", policy.Overloaded, took(2*minute))
		}, "skipped circuit_open 6/5"},
		"fails after the next one left": {func(s *site) {
			s.wait(minute)
			s.ask(policy.Request{ID: "next"})
			s.endFor("r", "k1", policy.Overloaded, took(minute))
		}, "skipped circuit_open (probe) 5/5"},
		"succeeds after the next one left": {func(s *site) {
			s.wait(minute)
			s.ask(policy.Request{ID: "next"})
			s.endFor("r", "k1", policy.OK, took(minute))
		}, "skipped circuit_open (probe) 5/5"},
		"is asked for again by its request": {func(s *site) {
			if got := s.statusOf("k1", "r"); got != "eligible" {
				s.t.Errorf("for r k1 is %q", got)
			}
		}, "skipped circuit_open (probe) 5/5"},
		"is not needed": {func(s *site) { s.endFor("r", "k2", policy.OK) }, "eligible"},
		"may be needed after all": {func(s *site) {
			s.endFor("r", "k2", policy.Overloaded)
		}, "skipped circuit_open (probe) 5/5"},
		"has stragglers that fail": {func(s *site) {
			for range 9 {
				s.end("k1", policy.Timeout, took(minute))
			}
		}, "skipped circuit_open (probe) 5/5"},
		"has stragglers that succeed": {func(s *site) {
			s.end("k1", policy.OK, took(minute))
		}, "skipped circuit_open (probe) 5/5"},
		"is not the only attempt, but the other came uninvited": {func(s *site) {
			s.wait(time.Second)
			s.end("k1", policy.Timeout, took(time.Second))
		}, "skipped circuit_open (probe) 5/5"},
		"had an attempt before": {func(s *site) {
			s.endFor("r", "k1", policy.Overloaded, took(minute))
		}, "skipped circuit_open (probe) 5/5"},
		"succeeds before stragglers fail": {func(s *site) {
			s.wait(time.Second)
			s.endFor("r", "k1", policy.OK, took(time.Second))
			s.wait(time.Second)
			for range 9 {
				s.end("k1", policy.Timeout, took(minute))
			}
		}, "eligible"},
		"fails as its request did elsewhere": {func(s *site) {
			s.endFor("r", "k2", policy.UpstreamError)
			s.endFor("r", "k1", policy.UpstreamError)
		}, "eligible"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, fixed, "k1", "k2")
			s.openAndWait("k1")
			s.expectFor("r", "k1 eligible", "k2 eligible")
			c.then(s)
			if got := s.statusOf("k1", "another"); got != c.want {
				t.Errorf("k1 is %q, want %q", got, c.want)
			}
		})
	}
}

// A probe leads its equals, and is given only to a request that comes to it
// first.
func TestProbeGoesToTheRequestThatComesToItFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "k1", "k2", "k3", "k4")
	s.candidate("k4").Priority = 1
	s.openAndWait("k2", "k3", "k4")
	s.expect("k2 eligible", "k1 eligible", "k3 skipped circuit_open (probe_due) 5/5", "k4 skipped circuit_open (probe_due) 5/5")
	s.expect("k3 eligible", "k1 eligible", "k2 skipped circuit_open (probe) 5/5 for 30s", "k4 skipped circuit_open (probe_due) 5/5")
	s.expect("k1 eligible", "k2 skipped circuit_open (probe) 5/5 for 30s", "k3 skipped circuit_open (probe) 5/5 for 30s", "k4 skipped circuit_open (probe_due) 5/5")
	s.candidate("k1").Disabled = true
	s.expect("k4 eligible", "k1 skipped disabled", "k2 skipped circuit_open (probe) 5/5 for 30s", "k3 skipped circuit_open (probe) 5/5 for 30s")
}

// A request that waits for a place takes no probe; it is judged again when it
// has one.
func TestBusyCandidateIsNotProbed(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "k1")
	s.openAndWait("k1")
	c := s.candidate("k1")
	c.Scopes = []policy.Scope{{ID: "key:p/k1", Kind: policy.ScopeConcurrency, Limit: 1, Used: 1}}
	s.expectFor("waits", "k1 busy key_concurrency 1/1")
	c.Scopes[0].Used = 0
	s.expectFor("comes", "k1 eligible")
	s.expectFor("waits", "k1 skipped circuit_open (probe) 5/5 for 30s")
}

// Invariant 3.
func TestAtMostOneProbeAmongConcurrentRequests_B65(t *testing.T) {
	t.Parallel()
	s := newSite(t, `{}`, "k1", "k2")
	s.openAndWait("k1", "k2")
	for round := range 3 {
		var (
			mu     sync.Mutex
			probes = map[string][]string{}
			wg     sync.WaitGroup
		)
		for i := range 1000 {
			wg.Go(func() {
				id := strings.Repeat("x", i)
				for _, v := range s.ask(policy.Request{ID: id}) {
					if v.Status == policy.Eligible {
						mu.Lock()
						probes[v.Candidate] = append(probes[v.Candidate], id)
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		for _, id := range []string{"p/k1/m", "p/k2/m"} {
			if len(probes[id]) != 1 {
				t.Fatalf("round %d: %d probes of %s, want 1", round, len(probes[id]), id)
			}
			s.endFor(probes[id][0], id, policy.ClientFault)
		}
	}
}

func TestStateSurvivesAReload(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "k1", "k2")
	s.openAndWait("k1")
	s.wait(-time.Minute)
	s.configure(`{"order": "priority", "cooldown": "1s"}`)
	if got := s.statusOf("k1", "x"); got != "skipped circuit_open 5/5" {
		t.Errorf("after a reload k1 is %q", got)
	}
}

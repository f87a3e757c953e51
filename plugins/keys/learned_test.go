package keys_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/usherproxy/usher/policy"
)

// learn lets a key refuse requests after n of them within a minute, twice.
func (s *site) learn(id string, n int) {
	s.t.Helper()
	for range 2 {
		s.send(id, n-1)
		s.end(id, policy.RateLimited, until(s.now))
		s.wait(time.Minute)
	}
	s.send(id, n)
}

// send lets n requests of a key end well.
func (s *site) send(id string, n int) {
	s.t.Helper()
	for range n {
		s.end(id, policy.OK)
	}
}

func window(w policy.Window) func(*policy.AttemptResult) {
	return func(res *policy.AttemptResult) { res.Windows = append(res.Windows, w) }
}

func TestLimitsAreLearned(t *testing.T) {
	t.Parallel()
	told := policy.Window{Name: "requests", Kind: policy.ScopeRequests, Length: time.Minute, Limit: 30, Used: 0.1}
	for name, c := range map[string]struct {
		tell func(s *site)
		want string
	}{
		"two refusals that agree": {func(s *site) { s.learn("k1", 20) }, "busy key_requests (learned) 20/20"},
		"the smaller of two": {func(s *site) {
			s.learn("k1", 25)
			s.end("k1", policy.RateLimited, until(s.now))
			s.wait(time.Minute)
			s.send("k1", 19)
			s.end("k1", policy.RateLimited, until(s.now))
		}, "busy key_requests (learned) 20/20"},
		"one refusal": {func(s *site) {
			s.send("k1", 19)
			s.end("k1", policy.RateLimited, until(s.now))
		}, "eligible"},
		"two refusals at once": {func(s *site) {
			s.send("k1", 19)
			s.end("k1", policy.RateLimited, until(s.now))
			s.end("k1", policy.RateLimited, until(s.now))
		}, "eligible"},
		"two refusals that do not agree": {func(s *site) {
			s.send("k1", 19)
			s.end("k1", policy.RateLimited, until(s.now))
			s.wait(time.Minute)
			s.send("k1", 59)
			s.end("k1", policy.RateLimited, until(s.now))
		}, "eligible"},
		"refusals after few requests": {func(s *site) { s.learn("k1", 5) }, "eligible"},
		"refusals of tokens": {func(s *site) {
			spent := window(policy.Window{Name: "tokens", Kind: policy.ScopeTokens, Length: time.Second, Used: 1})
			for range 2 {
				s.send("k1", 19)
				s.end("k1", policy.RateLimited, until(s.now), spent)
				s.wait(time.Minute)
			}
			s.send("k1", 20)
		}, "eligible"},
		"what the provider tells": {func(s *site) {
			s.send("k1", 29)
			s.end("k1", policy.OK, window(told))
		}, "busy key_requests (learned) 30/30"},
		"what it told last": {func(s *site) {
			s.send("k1", 29)
			s.end("k1", policy.OK, window(told))
			more := told
			more.Limit = 40
			s.wait(time.Second)
			s.end("k1", policy.OK, window(more))
		}, "eligible"},
		"what it told outranks refusals": {func(s *site) {
			s.end("k1", policy.OK, window(told))
			s.learn("k1", 20)
		}, "eligible"},
		"what it tells of a model": {func(s *site) {
			model := told
			model.About = policy.SubjectModel
			s.send("k1", 29)
			s.end("k1", policy.OK, window(model))
		}, "busy key_requests (learned) 30/30"},
		"refusals of an account's requests": {func(s *site) {
			s.candidate("k1").Account = "team"
			for range 2 {
				s.send("k1", 19)
				s.end("k1", policy.RateLimited, until(s.now), func(res *policy.AttemptResult) { res.About = policy.SubjectAccount })
				s.wait(time.Minute)
			}
			s.send("k1", 20)
		}, "eligible"},
		"a limit per day": {func(s *site) {
			daily := told
			daily.Length = 24 * time.Hour
			s.send("k1", 30)
			s.end("k1", policy.OK, window(daily))
		}, "eligible"},
		"a limit in the configuration": {func(s *site) {
			s.learn("k1", 20)
			s.candidate("k1").Scopes = []policy.Scope{{ID: "key:p/k1", Kind: policy.ScopeRequests, Window: time.Minute, Limit: 100, Used: 20}}
		}, "eligible"},
		"a limit that is not reached any more": {func(s *site) {
			s.learn("k1", 20)
			s.wait(time.Minute)
		}, "eligible"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, fixed, "k1", "k2")
			c.tell(s)
			if got := s.statusOf("k1", "x"); got != c.want {
				t.Errorf("k1 is %q, want %q", got, c.want)
			}
		})
	}
}

// A learned limit grows until it is forgotten, so that one that was too low does
// not stay.
func TestLearnedLimitsGrow(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "k1")
	s.learn("k1", 100)
	last := 100
	for minute := range 58 {
		s.wait(time.Minute)
		s.send("k1", 400)
		var used, limit int
		if _, err := fmt.Sscanf(s.statusOf("k1", "x"), "busy key_requests (learned) %d/%d", &used, &limit); err != nil {
			t.Fatalf("after %d minutes: %v", minute, err)
		}
		if used != 400 || limit < last || limit > last+5 {
			t.Errorf("after %d minutes: %d of %d, and %d before", minute, used, limit, last)
		}
		last = limit
	}
	s.wait(time.Minute)
	s.send("k1", 400)
	s.expect("k1 eligible")
}

package keys_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/usherproxy/usher/plugins/keys"
	"github.com/usherproxy/usher/policy"
)

func TestCooldownLastsAsLongAsTheProviderSays_B52(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		until time.Duration
		want  string
	}{
		"a while":                {30 * time.Second, "k1 skipped cooldown for 30s"},
		"a nanosecond":           {1, "k1 skipped cooldown for 1ns"},
		"the maximum":            {5 * time.Minute, "k1 skipped cooldown for 5m0s"},
		"more than the maximum":  {30 * time.Minute, "k1 skipped cooldown for 5m0s"},
		"as good as for ever":    {290 * 365 * 24 * time.Hour, "k1 skipped cooldown for 5m0s"},
		"until now":              {0, "k1 eligible"},
		"until a while ago":      {-5 * time.Second, "k1 eligible"},
		"until long before time": {-290 * 365 * 24 * time.Hour, "k1 eligible"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, `{"order": "priority", "cooldown_max": "5m"}`, "k1")
			s.end("k1", policy.RateLimited, until(s.now.Add(c.until)))
			s.expect(c.want)
			s.wait(5 * time.Minute)
			s.expect("k1 eligible")
		})
	}
}

func TestCooldownNeverShrinks(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "k1")
	s.end("k1", policy.RateLimited, until(s.now.Add(time.Minute)))
	s.end("k1", policy.RateLimited, until(s.now.Add(time.Second)))
	s.end("k1", policy.OK)
	s.expect("k1 skipped cooldown for 1m0s")
}

// What nobody prescribed is spread over at least half of the interval.
func TestDefaultTimesAreSpread_B61(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		disposition policy.Disposition
		want        time.Duration
	}{
		"cooldown":      {policy.RateLimited, 10 * time.Second},
		"quota_retry":   {policy.QuotaExhausted, 10 * time.Minute},
		"invalid_retry": {policy.AuthFailed, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			least, most := c.want, time.Duration(0)
			for i := range 200 {
				s := newSite(t, fixed, "k1")
				s.endFor(fmt.Sprint("request ", i), "k1", c.disposition)
				d := s.ask(policy.Request{ID: "x"})[0].Until.Sub(s.now)
				least, most = min(least, d), max(most, d)
			}
			if least < c.want/2 || least > c.want*11/20 || most > c.want || most < c.want*19/20 {
				t.Errorf("from %v to %v, want all of %v to %v", least, most, c.want/2, c.want)
			}
		})
	}
}

// Who is affected by what a provider says of one request.
func TestReach(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		disposition policy.Disposition
		status      int
		reason      policy.Reason
		reached     []string
	}{
		"rate limit: key and model": {policy.RateLimited, 429, policy.ReasonCooldown, []string{"p/k1/m1"}},
		"quota: key":                {policy.QuotaExhausted, 429, policy.ReasonAccountQuota, []string{"p/k1/m1", "p/k1/m2"}},
		"401: key":                  {policy.AuthFailed, http.StatusUnauthorized, policy.ReasonAccountInvalid, []string{"p/k1/m1", "p/k1/m2"}},
		"bad key with 400: key":     {policy.AuthFailed, http.StatusBadRequest, policy.ReasonAccountInvalid, []string{"p/k1/m1", "p/k1/m2"}},
		"403: key and model":        {policy.AuthFailed, http.StatusForbidden, policy.ReasonAccountInvalid, []string{"p/k1/m1"}},
		"the caller's own fault":    {policy.ClientFault, 401, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, fixed, "p/k1/m1", "p/k1/m2", "p/k2/m1", "q/k1/m1")
			s.end("p/k1/m1", c.disposition, status(c.status))
			var reached []string
			for _, v := range s.ask(policy.Request{ID: "x"}) {
				if v.Status != policy.Eligible {
					reached = append(reached, v.Candidate)
					if v.Reason != c.reason {
						t.Errorf("%s: reason %s, want %s", v.Candidate, v.Reason, c.reason)
					}
				}
			}
			if !reflect.DeepEqual(reached, c.reached) {
				t.Errorf("reached %v, want %v", reached, c.reached)
			}
		})
	}
}

func TestQuotaResetIsBelieved(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "k1")
	s.end("k1", policy.QuotaExhausted, until(s.now.Add(7*24*time.Hour)))
	s.end("k1", policy.QuotaExhausted)
	s.expect("k1 skipped account_quota for 168h0m0s")
	s.end("k1", policy.QuotaExhausted, until(s.now.Add(200*365*24*time.Hour)))
	s.expect("k1 skipped account_quota for 744h0m0s")
	s.wait(31 * 24 * time.Hour)
	s.expect("k1 eligible")
}

// A refused key is tried again, by one request at a time.
func TestRefusedKeyComesBack_B44(t *testing.T) {
	t.Parallel()
	s := newSite(t, `{"order": "priority", "invalid_retry": "10m", "invalid_retry_max": "15m"}`, "k1", "k2")
	s.end("k1", policy.AuthFailed, status(http.StatusUnauthorized))
	s.wait(10 * time.Minute)
	s.expectFor("r", "k1 eligible", "k2 eligible")
	s.expect("k2 eligible", "k1 skipped account_invalid (probe) for 30s")
	s.endFor("r", "k1", policy.AuthFailed, status(http.StatusUnauthorized))
	if d := s.ask(policy.Request{ID: "x"})[1].Until.Sub(s.now); d < 15*time.Minute/2 || d > 15*time.Minute {
		t.Errorf("refused for another %v, want 7m30s to 15m", d)
	}
	s.wait(15 * time.Minute)
	s.expectFor("r", "k1 eligible", "k2 eligible")
	s.endFor("r", "k1", policy.OK)
	s.expect("k1 eligible", "k2 eligible")
}

// A key that was refused and also fails needs one probe for both.
func TestOneProbeForSeveralBreakers(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "k1")
	s.openAndWait("k1")
	s.end("k1", policy.AuthFailed, status(http.StatusUnauthorized))
	s.end("k1", policy.AuthFailed, status(http.StatusForbidden))
	s.wait(10 * time.Minute)
	s.expectFor("r", "k1 eligible")
	s.expect("k1 skipped account_invalid (probe) for 30s")
	s.endFor("r", "k1", policy.Overloaded)
	s.expect("k1 skipped circuit_open 6/5 for " + s.circuitTime())
	s.wait(2 * time.Minute)
	s.expectFor("r2", "k1 eligible")
	s.endFor("r2", "k1", policy.OK)
	s.expect("k1 eligible")
}

func (s *site) circuitTime() string {
	return s.ask(policy.Request{ID: "t"})[0].Until.Sub(s.now).String()
}

// Invariant 5.
func TestResultsCommute(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(1, 2))
	start := time.Unix(1_000_000, 0)
	for range 300 {
		var results []policy.AttemptResult
		for i := range 12 {
			d := []policy.Disposition{policy.OK, policy.RateLimited, policy.QuotaExhausted, policy.ClientGone}[dice.IntN(4)]
			if i < 4 {
				d = policy.Overloaded
			}
			res := policy.AttemptResult{
				RequestID: fmt.Sprint(i), Candidate: candidate("k1"), Format: "openai", Disposition: d,
				EndedAt: start.Add(time.Duration(dice.IntN(120)) * time.Second), Duration: time.Duration(dice.IntN(5)) * time.Second,
			}
			if dice.IntN(2) == 0 {
				res.Until = res.EndedAt.Add(time.Duration(dice.IntN(900)-60) * time.Second)
			}
			results = append(results, res)
		}
		var first []string
		for range 4 {
			dice.Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
			if got := learned(t, start.Add(2*time.Minute), results); first == nil {
				first = got
			} else if !reflect.DeepEqual(got, first) {
				t.Fatalf("two orders of %v:\n%v\n%v", results, first, got)
			}
		}
	}
}

// learned returns what the site says at several instants after the results,
// and after how many more failures it opens the breaker.
func learned(t *testing.T, now time.Time, results []policy.AttemptResult) []string {
	t.Helper()
	s := newSite(t, fixed, "k1")
	s.now = now
	for _, res := range results {
		s.Observe(t.Context(), res)
	}
	var said []string
	for range 5 {
		v := s.ask(policy.Request{ID: "x"})[0]
		said = append(said, describe(v.Status, v.Why))
		s.endFor(fmt.Sprint("more ", len(said)), "k1", policy.Overloaded)
	}
	for range 20 {
		v := s.ask(policy.Request{ID: "x"})[0]
		said = append(said, describe(v.Status, v.Why))
		s.wait(30 * time.Second)
	}
	return said
}

// A result that is dated ahead, or not at all, ended now.
func TestResultsAreNotFromTheFuture(t *testing.T) {
	t.Parallel()
	for _, ended := range []time.Time{{}, time.Unix(9_000_000_000, 0)} {
		s := newSite(t, fixed, "k1")
		for range 5 {
			s.end("k1", policy.Overloaded, func(res *policy.AttemptResult) { res.EndedAt = ended })
		}
		if d := s.ask(policy.Request{ID: "x"})[0].Until.Sub(s.now); d < 30*time.Second || d > time.Minute {
			t.Errorf("ended at %v: open for %v", ended, d)
		}
	}
}

// A key that nobody speaks of any more is forgotten, and so is a probe that was
// never heard of.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "always")
	s.openAndWait("always")
	always := s.candidates
	dispositions := policy.Dispositions()
	for i := range 5000 {
		s.candidates = always
		s.ask(policy.Request{ID: fmt.Sprint("always ", i)})
		s.candidates = []policy.Candidate{candidate(fmt.Sprint("k", max(i-2, 0))), candidate(fmt.Sprint("k", i))}
		s.ask(policy.Request{ID: fmt.Sprint("probe ", i)})
		s.endFor(fmt.Sprint(i), s.candidates[1].ID, dispositions[i%len(dispositions)], status(400+i%5))
		s.wait(time.Minute)
	}
	records, probing := keys.Remembered(s.plugin)
	if records > 256 || probing > 64 {
		t.Errorf("%d records and %d probes after days of a new key a minute", records, probing)
	}
}

func TestMemoryKeepsWhatMatters(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		tell func(*site)
		wait time.Duration
		want string
	}{
		"quota":    {func(s *site) { s.end("k1", policy.QuotaExhausted, until(s.now.Add(2*day))) }, day, "skipped account_quota"},
		"cooldown": {func(s *site) { s.end("k1", policy.RateLimited, until(s.now.Add(2*day))) }, day, "skipped cooldown"},
		"refusal":  {func(s *site) { s.end("k1", policy.AuthFailed) }, day, "skipped account_invalid (key)"},
		"probe": {func(s *site) {
			s.end("k1", policy.AuthFailed)
			s.wait(2 * day)
			s.ask(policy.Request{ID: "probe"})
		}, day, "skipped account_invalid (probe)"},
		"failures": {func(s *site) {
			for range 5 {
				s.end("k1", policy.Overloaded)
				s.wait(10 * time.Minute)
			}
		}, 0, "skipped circuit_open 5/5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, `{
				"cooldown_max": "48h", "invalid_retry": "48h", "invalid_retry_max": "48h",
				"breaker": {"window": "1h", "open": "48h", "open_max": "48h", "probe_timeout": "48h"}
			}`, "k1", "k2")
			c.tell(s)
			s.wait(c.wait)
			for i := range 1000 {
				*s.candidate("k2") = candidate("k2")
				s.candidate("k2").Key = fmt.Sprint("other ", i)
				s.end(s.candidates[1].ID, policy.Overloaded)
				s.candidates[1].Key = "k2"
			}
			if got := s.statusOf("k1", "x"); got != c.want {
				t.Errorf("k1 is %q, want %q", got, c.want)
			}
		})
	}
}

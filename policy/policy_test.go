package policy_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/usherproxy/usher/policy"
)

var word = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func TestClosedSetsAreDistinctSnakeCaseWords(t *testing.T) {
	t.Parallel()
	var all []string
	for _, r := range policy.Reasons() {
		all = append(all, "reason "+string(r))
		if !r.Valid() {
			t.Errorf("%q is listed but not valid", r)
		}
	}
	for _, d := range policy.Dispositions() {
		all = append(all, "disposition "+string(d))
		if !d.Valid() {
			t.Errorf("%q is listed but not valid", d)
		}
	}
	for _, k := range policy.ScopeKinds() {
		all = append(all, "kind "+string(k))
	}
	seen := map[string]bool{}
	for _, s := range all {
		if seen[s] {
			t.Errorf("%s is listed twice", s)
		}
		seen[s] = true
		if _, w, _ := strings.Cut(s, " "); !word.MatchString(w) {
			t.Errorf("%s is not a snake_case word", s)
		}
	}
	if policy.Reason("no such reason").Valid() || policy.Disposition("").Valid() {
		t.Error("an unlisted word is valid")
	}
}

// What tells the candidate's health, and what comes next.
func TestDispositionsSayWhatComesNext(t *testing.T) {
	t.Parallel()
	for d, want := range map[policy.Disposition][2]bool{
		policy.OK:             {false, false},
		policy.ClientFault:    {false, false},
		policy.ContextLength:  {false, true},
		policy.RateLimited:    {false, true},
		policy.QuotaExhausted: {false, true},
		policy.AuthFailed:     {false, true},
		policy.Overloaded:     {true, true},
		policy.UpstreamError:  {true, true},
		policy.ConnectFailed:  {true, true},
		policy.Timeout:        {true, true},
		policy.ClientGone:     {false, false},
		policy.Denied:         {false, false},
	} {
		if got := [2]bool{d.Failure(), d.Failover()}; got != want {
			t.Errorf("%s: (Failure, Failover) = %v, want %v", d, got, want)
		}
	}
}

func TestScopeAmount(t *testing.T) {
	t.Parallel()
	req := &policy.Request{InputTokens: 100, MaxOutputTokens: 50}
	for name, c := range map[string]struct {
		scope policy.Scope
		req   *policy.Request
		want  int64
	}{
		"concurrency":                {policy.Scope{Kind: policy.ScopeConcurrency, Limit: 5}, req, 1},
		"requests":                   {policy.Scope{Kind: policy.ScopeRequests, Limit: 5}, req, 1},
		"tokens":                     {policy.Scope{Kind: policy.ScopeTokens, Limit: 1000}, req, 150},
		"tokens beyond the limit":    {policy.Scope{Kind: policy.ScopeTokens, Limit: 120}, req, 120},
		"tokens of an empty request": {policy.Scope{Kind: policy.ScopeTokens, Limit: 120}, &policy.Request{}, 1},
	} {
		if got := c.scope.Amount(c.req); got != c.want {
			t.Errorf("%s: Amount = %d, want %d", name, got, c.want)
		}
	}
}

func TestSelectionCheckFindsWrongAnswers(t *testing.T) {
	t.Parallel()
	a, b := policy.Candidate{ID: "a"}, policy.Candidate{ID: "b"}
	cooldown := policy.Why{Reason: policy.ReasonCooldown}
	for name, c := range map[string]struct {
		answer func(*policy.Selection)
		want   string
	}{
		"nothing said":    {func(*policy.Selection) {}, ""},
		"one of each":     {func(s *policy.Selection) { s.Skip(a, cooldown); s.Add(b) }, ""},
		"unknown":         {func(s *policy.Selection) { s.Add(policy.Candidate{ID: "x"}) }, "not offered"},
		"twice":           {func(s *policy.Selection) { s.Add(a); s.Add(a) }, "two verdicts"},
		"ranked, skipped": {func(s *policy.Selection) { s.Add(a); s.Skip(a, cooldown) }, "two verdicts"},
		"no reason":       {func(s *policy.Selection) { s.Skip(a, policy.Why{}) }, "unknown reason"},
		"no status":       {func(s *policy.Selection) { s.Verdicts = []policy.Verdict{{Candidate: "a"}} }, "unknown status"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s policy.Selection
			c.answer(&s)
			err := s.Check([]policy.Candidate{a, b})
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Check = %v, want %q", err, c.want)
			}
		})
	}
}

func TestSelectionRankedKeepsTheOrderOfTheAnswer(t *testing.T) {
	t.Parallel()
	a, b, c := policy.Candidate{ID: "a"}, policy.Candidate{ID: "b"}, policy.Candidate{ID: "c"}
	var s policy.Selection
	s.Add(c)
	s.Skip(b, policy.Why{Reason: policy.ReasonDisabled})
	s.Busy(a, policy.Why{Reason: policy.ReasonKeyConcurrency})
	ranked := s.Ranked([]policy.Candidate{a, b, c})
	if len(ranked) != 2 || ranked[0].ID != "c" || ranked[1].ID != "a" {
		t.Errorf("Ranked = %v, want c, a", ranked)
	}
}

func TestMayWait(t *testing.T) {
	t.Parallel()
	told := 0
	ask := policy.AdmitRequest{Waiting: func(position int) { told = position }}
	if err := ask.MayWait(3, policy.ReasonRate); err != nil || told != 3 {
		t.Errorf("position %d was told (%v), want 3", told, err)
	}
	if err := (&policy.AdmitRequest{}).MayWait(3, policy.ReasonRate); err != nil {
		t.Errorf("nobody listens: %v", err)
	}
	told, ask.NoWait = 0, true
	rejection, ok := errors.AsType[*policy.Rejection](ask.MayWait(3, policy.ReasonRate))
	if !ok || rejection.Reason != policy.ReasonRate || told != 0 {
		t.Errorf("got %+v, and position %d was told; want a rejection alone", rejection, told)
	}
}

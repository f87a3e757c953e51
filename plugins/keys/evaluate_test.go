package keys_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/plugins/keys"
	"github.com/usherproxy/usher/policy"
)

// A verdictCase is a line of testdata/verdicts.json. Times are unix seconds;
// scopes are written "used/limit". The candidate is the key "k" of the
// provider "p", and the request is "this".
type verdictCase struct {
	Name          string
	Now           *int64
	Scopes        map[string]string
	Rates         map[string]string
	Quota         int64
	Credential    *breakerCase
	Permission    *breakerCase
	Circuit       *breakerCase
	Cooldown      int64
	Disabled      bool
	ContextTokens int64 `json:"context_tokens"`
	InputTokens   int64 `json:"input_tokens"`
	Want          string
}

type breakerCase struct {
	Open            bool
	Until           int64
	Probe           string
	ProbeUntil      int64 `json:"probe_until"`
	Failures, Limit int
}

func TestEvaluate(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/verdicts.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []verdictCase
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(100, 0)
			if c.Now != nil {
				now = time.Unix(*c.Now, 0)
			}
			f := c.facts(t)
			status, why := keys.Evaluate(now, &f)
			got := describe(status, why)
			if status == policy.Eligible && f.Probe() {
				got += " as probe"
			}
			if got != c.Want {
				t.Errorf("got %q, want %q", got, c.Want)
			}
		})
	}
}

func (c verdictCase) facts(t *testing.T) keys.Facts {
	t.Helper()
	f := keys.Facts{
		Request:    &policy.Request{ID: "this", Format: "openai", InputTokens: c.InputTokens},
		Candidate:  &policy.Candidate{ID: "p/k/m", Provider: "p", Key: "k", Model: "m", Disabled: c.Disabled, ContextTokens: c.ContextTokens},
		Quota:      instant(c.Quota),
		Credential: c.Credential.breaker(),
		Permission: c.Permission.breaker(),
		Circuit:    c.Circuit.breaker(),
		Cooldown:   instant(c.Cooldown),
	}
	for kind, scopes := range map[policy.ScopeKind]map[string]string{
		policy.ScopeConcurrency: c.Scopes, policy.ScopeRequests: c.Rates, policy.ScopeTokens: c.Rates,
	} {
		for _, id := range slices.Sorted(maps.Keys(scopes)) {
			s := policy.Scope{ID: id, Kind: kind}
			if _, err := fmt.Sscanf(scopes[id], "%d/%d", &s.Used, &s.Limit); err != nil {
				t.Fatal(err)
			}
			owner, _, _ := strings.Cut(id, ":")
			if owner == "provider" || owner == "key" || owner == "model" {
				f.Candidate.Scopes = append(f.Candidate.Scopes, s)
			} else {
				f.Request.Scopes = append(f.Request.Scopes, s)
			}
		}
	}
	return f
}

func (c *breakerCase) breaker() *keys.Breaker {
	if c == nil {
		return nil
	}
	return &keys.Breaker{
		Open: c.Open, Until: instant(c.Until),
		Probe: c.Probe, ProbeUntil: instant(c.ProbeUntil),
		Failures: c.Failures, Limit: c.Limit,
	}
}

func instant(unix int64) time.Time {
	if unix == 0 {
		return time.Time{}
	}
	return time.Unix(unix, 0)
}

// describe writes a verdict as testdata does.
func describe(status policy.Status, why policy.Why) string {
	text := string(status)
	if why.Reason != "" {
		text += " " + string(why.Reason)
	}
	if why.Detail != "" {
		text += " (" + why.Detail + ")"
	}
	if why.Limit != 0 {
		text += fmt.Sprintf(" %g/%g", why.Observed, why.Limit)
	}
	if !why.Until.IsZero() {
		text += fmt.Sprintf(" until %d", why.Until.Unix())
	}
	return text
}

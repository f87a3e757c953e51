package keys_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/plugins/keys"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// A verdictCase is a line of testdata/verdicts.json or testdata/vectors.json.
// Times are unix seconds; scopes are written "used/limit", with "@" and when the
// first of what they count leaves the window. The candidate is the key "k" of
// the provider "p", and the request is "this".
type verdictCase struct {
	ID, Name         string
	Now              *int64
	Format           string
	Scopes           map[string]string // of concurrency
	Requests, Tokens map[string]string // per window

	Provider, Account, Key, Model *knownCase

	Sent            int     // requests of the key within the last minute
	Reserve         float64 // part of each quota
	NoCircuits      bool    `json:"no_circuits"`
	Disabled, Doubt bool
	ContextTokens   int64 `json:"context_tokens"`
	InputTokens     int64 `json:"input_tokens"`
	MinInputTokens  int64 `json:"min_input_tokens"`
	Want            string
}

type knownCase struct {
	Windows, Observed []windowCase
	Quota, Cooldown   int64
	Said, Cleared     int64 // of the quota
	Account           struct {
		Standing       keys.Standing
		Expires, Until int64
	}
	Refused  *breakerCase
	Circuits map[string]*breakerCase
	Health   map[string]float64
	Learned  struct {
		Limit int
		Told  bool
		Since int64
	}
}

type windowCase struct {
	Name             string
	Kind             policy.ScopeKind
	Length           sdk.Duration
	Used, Limit      float64
	Resets, Observed int64
}

type breakerCase struct {
	Open            bool
	Until           int64
	Probing         bool
	Probe           string
	ProbeUntil      int64 `json:"probe_until"`
	Failures, Limit int
}

func TestEvaluate(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"verdicts.json", "vectors.json"} {
		for _, c := range readCases(t, file) {
			t.Run(strings.TrimSpace(c.ID+" "+c.Name), func(t *testing.T) {
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
				summarized := f.Summarized()
				if again, why := keys.Evaluate(now, &summarized); again != status {
					t.Errorf("once summarized: %q", describe(again, why))
				}
			})
		}
	}
}

func readCases(t *testing.T, file string) []verdictCase {
	t.Helper()
	raw, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }() // was only read
	var cases []verdictCase
	dec := json.NewDecoder(raw)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&cases); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return cases
}

func (c verdictCase) facts(t *testing.T) keys.Facts {
	t.Helper()
	f := keys.Facts{
		Request: &policy.Request{
			ID: "this", Format: cmp.Or(c.Format, "openai"), InputTokens: c.InputTokens, MinInputTokens: c.MinInputTokens,
		},
		Candidate:   &policy.Candidate{ID: "p/k/m", Provider: "p", Key: "k", Model: "m", Disabled: c.Disabled, ContextTokens: c.ContextTokens},
		Provider:    c.Provider.known(),
		Account:     c.Account.known(),
		Key:         c.Key.known(),
		Model:       c.Model.known(),
		KeyRequests: c.Sent, ModelRequests: c.Sent,
		NoCircuits: c.NoCircuits, QuotaReserve: c.Reserve, DoubtEstimate: c.Doubt,
	}
	for kind, scopes := range map[policy.ScopeKind]map[string]string{
		policy.ScopeConcurrency: c.Scopes, policy.ScopeRequests: c.Requests, policy.ScopeTokens: c.Tokens,
	} {
		for _, id := range slices.Sorted(maps.Keys(scopes)) {
			s := policy.Scope{ID: id, Kind: kind}
			numbers, resets, dated := strings.Cut(scopes[id], "@")
			if _, err := fmt.Sscanf(numbers, "%d/%d", &s.Used, &s.Limit); err != nil {
				t.Fatal(err)
			}
			if dated {
				unix, err := strconv.ParseInt(resets, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				s.Resets = time.Unix(unix, 0)
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

func (c *knownCase) known() *keys.Known {
	if c == nil {
		return nil
	}
	k := &keys.Known{
		Quota:    keys.Hold{Until: instant(c.Quota), At: instant(c.Said), Cleared: instant(c.Cleared)},
		Cooldown: keys.Hold{Until: instant(c.Cooldown)},
		Account: keys.AccountState{
			Standing: c.Account.Standing, Expires: instant(c.Account.Expires), Until: instant(c.Account.Until),
		},
		Refused: c.Refused.breaker(),
		Learned: keys.Learned{Limit: c.Learned.Limit, Told: c.Learned.Told, Since: instant(c.Learned.Since)},
	}
	for _, w := range c.Windows {
		k.Windows = append(k.Windows, w.window())
	}
	for _, w := range c.Observed {
		k.Observe(w.window())
	}
	for _, format := range slices.Sorted(maps.Keys(c.Circuits)) {
		k.Circuits = append(k.Circuits, keys.Circuit{Format: format, Breaker: c.Circuits[format].breaker()})
	}
	for _, format := range slices.Sorted(maps.Keys(c.Health)) {
		k.Health = append(k.Health, keys.Health{Format: format, Score: c.Health[format]})
	}
	return k
}

func (c windowCase) window() policy.Window {
	return policy.Window{
		Name: c.Name, Kind: c.Kind, Length: time.Duration(c.Length), Used: c.Used, Limit: c.Limit,
		Resets: instant(c.Resets), ObservedAt: instant(c.Observed),
	}
}

func (c *breakerCase) breaker() keys.Breaker {
	if c == nil {
		return keys.Breaker{}
	}
	return keys.Breaker{
		Open: c.Open, Until: instant(c.Until),
		Probing: c.Probing, Probe: c.Probe, ProbeUntil: instant(c.ProbeUntil),
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

package keys_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/policy"
)

// operate sends a command that must be carried out.
func (s *site) operate(name, input string) string {
	s.t.Helper()
	out, err := s.Operate(s.t.Context(), policy.Command{Name: name, Input: json.RawMessage(input)})
	if err != nil {
		s.t.Fatalf("%s %s: %v", name, input, err)
	}
	return string(out)
}

func TestOperators(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		command, input string
		want           []string
		wait           time.Duration // after which all serve, or never
	}{
		"a key's window": {
			"set-windows", `{"provider": "p", "key": "k1", "windows": [{"name": "weekly", "used": 1, "resets": "1970-01-14T13:46:40Z"}]}`,
			[]string{"k2 eligible", "k1 skipped account_quota (weekly) 1/1 for 48h0m0s"},
			2 * day,
		},
		"a key's window with one model": {
			"set-windows", `{"provider": "p", "key": "k1", "model": "m", "windows": [{"name": "5h", "used": 1, "length": "5h"}]}`,
			[]string{"k2 eligible", "k1 skipped account_quota (5h) 1/1 for 5h0m0s"},
			5 * time.Hour,
		},
		"a window with room": {
			"set-windows", `{"provider": "p", "key": "k1", "windows": [{"name": "weekly", "used": 0.99}]}`,
			[]string{"k1 eligible", "k2 eligible"},
			0,
		},
		"an account's window": {
			"set-windows", `{"provider": "p", "account": "shared", "windows": [{"name": "weekly", "used": 1}]}`,
			[]string{"k1 skipped account_quota (weekly) 1/1", "k2 skipped account_quota (weekly) 1/1"},
			0,
		},
		"a provider's budget": {
			"set-windows", `{"provider": "p", "windows": [{"name": "budget", "used": 1, "limit": 500}]}`,
			[]string{"k1 skipped provider_quota (budget) 500/500", "k2 skipped provider_quota (budget) 500/500"},
			0,
		},
		"a rate": {
			"set-windows", `{"provider": "p", "key": "k2", "windows": [{"name": "tokens", "kind": "tokens", "used": 1, "length": "1m", "limit": 10}]}`,
			[]string{"k1 eligible", "k2 skipped cooldown (tokens) 10/10 for 1m0s"},
			time.Minute,
		},
		"another provider": {
			"set-windows", `{"provider": "q", "windows": [{"name": "budget", "used": 1}]}`,
			[]string{"k1 eligible", "k2 eligible"},
			0,
		},
		"a blocked key": {
			"set-account", `{"provider": "p", "key": "k1", "standing": "blocked", "until": "1970-01-12T14:46:40Z"}`,
			[]string{"k2 eligible", "k1 skipped account_invalid (blocked) for 1h0m0s"},
			time.Hour,
		},
		"a blocked account": {
			"set-account", `{"provider": "p", "account": "shared", "standing": "blocked"}`,
			[]string{"k1 skipped account_invalid (blocked)", "k2 skipped account_invalid (blocked)"},
			0,
		},
		"a token that cannot be renewed": {
			"set-account", `{"provider": "p", "key": "k1", "standing": "refresh_failed", "expires": "1970-01-12T13:46:40Z"}`,
			[]string{"k2 eligible", "k1 skipped oauth_invalid (refresh_failed)"},
			0,
		},
		"no health": {
			"set-health", `{"provider": "p", "key": "k1", "health": 0}`,
			[]string{"k2 eligible", "k1 skipped health_zero"},
			0,
		},
		"no health for another format": {
			"set-health", `{"provider": "p", "key": "k1", "health": 0, "format": "gemini"}`,
			[]string{"k1 eligible", "k2 eligible"},
			0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, early := range []bool{true, false} { // before any request, or after one
				s := newSite(t, fixed, "k1", "k2")
				for i := range s.candidates {
					s.candidates[i].KeyVersion, s.candidates[i].Account = "v1", "shared"
				}
				if !early {
					s.expect("k1 eligible", "k2 eligible")
				}
				s.operate(c.command, c.input)
				s.expect(c.want...)
				if c.wait > 0 {
					s.wait(c.wait)
					s.expect("k1 eligible", "k2 eligible")
				}
			}
		})
	}
}

func TestOperatorsAreToldWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ command, input, want string }{
		{"rest", ``, `no such command "rest"; there are: status, set-windows,`},
		{"status", `{"keys": "k1"}`, `status: input: no such member "keys"`},
		{"status", `{} {}`, `status: input: more than one JSON value`},
		{"status", `{`, `status: input: unexpected EOF`},
		{"set-windows", ``, `set-windows: provider: is missing`},
		{"set-windows", `[]`, `set-windows: input: `},
		{"set-windows", `{"provider": "p"}`, `windows: are 0, want 1 to 64`},
		{"set-windows", `{"provider": "p", "windows": {}}`, `windows: a object is not what is wanted there`},
		{"set-windows", `{"provider": "p", "model": "m", "windows": []}`, `model: goes with key only`},
		{"set-windows", `{"provider": "p", "key": "k", "account": "a"}`, `key and account: name one of them`},
		{"set-windows", `{"provider": "p", "windows": [{"used": 1}]}`, `windows[0]: name: is missing`},
		{"set-windows", `{"provider": "p", "windows": [{"name": "a", "used": 50}]}`, `windows[0]: used: is 50, want the part`},
		{"set-windows", `{"provider": "p", "windows": [{"name": "a", "used": 1, "kind": "money"}]}`, `windows[0]: kind: is "money", want "requests"`},
		{"set-windows", `{"provider": "p", "windows": [{"name": "a", "used": 1, "resets": "tomorrow"}]}`, `parsing time`},
		{"set-windows", `{"provider": "p", "windows": [{"name": "a", "used": 1, "length": "5"}]}`, `"5" is not a duration`},
		{"set-windows", `{"provider": "p", "windows": [{"name": "a", "used": 1, "limit": -1}]}`, `limit: is -1`},
		{"set-windows", `{"provider": "p", "windows": [{"name": "a", "used": 1, "observed_at": "2200-01-01T00:00:00Z"}]}`, `observed_at: is 2200`},
		{"set-account", `{"provider": "p", "standing": "ok"}`, `key or account: is missing`},
		{"set-account", `{"provider": "p", "key": "k"}`, `standing: is "", want one of ["ok"`},
		{"set-account", `{"provider": "p", "key": "k", "standing": "banned"}`, `standing: is "banned"`},
		{"set-account", `{"provider": "p", "key": "k", "model": "m", "standing": "ok"}`, `model: has no standing`},
		{"set-account", `{"provider": "p", "key": "k", "standing": "ok", "at": "2200-01-01T00:00:00Z"}`, `at: is 2200`},
		{"set-health", `{"provider": "p", "key": "k"}`, `health: want a number from 0 to 1`},
		{"set-health", `{"provider": "p", "key": "k", "health": 2}`, `health: want a number`},
		{"set-health", `{"provider": "p", "account": "a", "health": 1}`, `key: health is that of a key`},
		{"clear", `{"key": "k"}`, `provider: is missing`},
		{"clear", `{"provider": "p", "facts": ["quota", "everything"]}`, `facts[1]: is "everything", want some of ["quota"`},
	} {
		s := newSite(t, fixed, "k1")
		out, err := s.Operate(t.Context(), policy.Command{Name: c.command, Input: json.RawMessage(c.input)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: answer %s, error %v; want %s", c.command, c.input, out, err, c.want)
		}
		s.expect("k1 eligible")
	}
}

// Whatever keeps a key away, an operator can end it.
func TestClear(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tell  func(s *site)
		facts string
	}{
		"quota":    {func(s *site) { s.end("k1", policy.QuotaExhausted) }, `["quota"]`},
		"cooldown": {func(s *site) { s.end("k1", policy.RateLimited) }, `["cooldown"]`},
		"quota of its own account": {func(s *site) {
			s.end("k1", policy.QuotaExhausted, func(res *policy.AttemptResult) { res.About = policy.SubjectAccount })
		}, `["quota"]`},
		"windows": {func(s *site) {
			s.operate("set-windows", `{"provider": "p", "key": "k1", "windows": [{"name": "a", "used": 1}]}`)
		}, `["windows"]`},
		"standing": {func(s *site) {
			s.operate("set-account", `{"provider": "p", "key": "k1", "standing": "revoked"}`)
		}, `["account"]`},
		"refusal":         {func(s *site) { s.end("k1", policy.AuthFailed, status(401)) }, `["breakers"]`},
		"model's refusal": {func(s *site) { s.end("k1", policy.AuthFailed, status(403)) }, `["breakers"]`},
		"breaker": {func(s *site) {
			s.openAndWait("k1")
			s.wait(-time.Minute)
		}, `["breakers"]`},
		"health":  {func(s *site) { s.operate("set-health", `{"provider": "p", "key": "k1", "health": 0}`) }, `["health"]`},
		"learned": {func(s *site) { s.learn("k1", 20) }, `["learned", "cooldown"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, input := range []string{
				`{"provider": "p", "key": "k1"}`,
				`{"provider": "p", "key": "k1", "facts": ` + c.facts + `}`,
			} {
				s := newSite(t, fixed, "k1")
				c.tell(s)
				if got := s.statusOf("k1", "x"); got == "eligible" {
					t.Fatal("k1 is eligible from the start")
				}
				s.wait(time.Nanosecond)
				s.operate("clear", input)
				s.expect("k1 eligible")
				s.wait(time.Minute)
				c.tell(s)
				if got := s.statusOf("k1", "x"); got == "eligible" {
					t.Error("what is said afterwards does not count")
				}
			}
		})
	}
}

// Keys of one account share its quota, also those of another provider, and a key
// after which the account is named.
func TestAccountsAreShared(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "p/k1/m", "p/k2/m", "p/k3/m", "q/k1/m", "q/k2/m")
	s.candidate("p/k1/m").Account = "p/k1"
	s.candidate("p/k2/m").Account = "k1"
	s.candidate("q/k2/m").Account = "p/k1"
	s.end("q/k2/m", policy.QuotaExhausted, until(s.now.Add(time.Hour)), func(res *policy.AttemptResult) { res.About = policy.SubjectAccount })
	s.expect("k3 eligible", "q/k1/m eligible",
		"k1 skipped account_quota for 1h0m0s", "k2 skipped account_quota for 1h0m0s", "q/k2/m skipped account_quota for 1h0m0s")
	s.wait(time.Nanosecond)
	s.operate("clear", `{"provider": "p", "account": "k1"}`)
	s.expect("k1 eligible", "k2 eligible", "k3 eligible", "q/k1/m eligible", "q/k2/m eligible")
}

func TestClearLeavesTheRest(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "p/k1/m1", "p/k1/m2", "p/k2/m1")
	for _, id := range []string{"p/k1/m1", "p/k1/m2", "p/k2/m1"} {
		s.end(id, policy.RateLimited, until(s.now.Add(time.Hour)))
	}
	s.operate("clear", `{"provider": "p", "key": "k1", "facts": ["breakers"]}`)
	s.operate("clear", `{"provider": "p", "key": "k1", "model": "m1"}`)
	s.expect("p/k1/m1 eligible", "p/k1/m2 skipped cooldown for 1h0m0s", "p/k2/m1 skipped cooldown for 1h0m0s")
}

// What is known of a key ends with its secret, and what is known of its account
// does not.
func TestNewSecretStartsAfresh(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "k1", "k2")
	version := func(v string) { s.candidate("k1").KeyVersion = v }
	version("v1")
	s.end("k1", policy.AuthFailed, status(401))
	s.end("k1", policy.QuotaExhausted)
	s.operate("set-account", `{"provider": "p", "key": "k1", "standing": "revoked"}`)
	s.operate("set-health", `{"provider": "p", "key": "k1", "health": 0}`)
	if got := s.statusOf("k1", "x"); got != "skipped account_quota" {
		t.Errorf("k1 is %q", got)
	}
	version("v2")
	s.expect("k1 eligible", "k2 eligible")
	version("v1") // a request that was there before
	if got := s.statusOf("k1", "x"); got != "skipped account_quota" {
		t.Errorf("the old k1 is %q", got)
	}
	version("v2")
	s.candidate("k1").Account, s.candidate("k2").Account = "a", "a"
	s.operate("set-account", `{"provider": "p", "account": "a", "standing": "blocked"}`)
	version("v3")
	s.expect("k1 skipped account_invalid (blocked)", "k2 skipped account_invalid (blocked)")
}

func TestStatus(t *testing.T) {
	t.Parallel()
	s := newSite(t, fixed, "p/k1/m1", "p/k1/m2", "p/k2/m1", "q/k1/m1")
	s.candidates[2].Account = "team"
	s.candidates[2].KeyVersion = "v7"
	s.expect("p/k1/m1 eligible", "p/k1/m2 eligible", "p/k2/m1 eligible", "q/k1/m1 eligible")
	s.end("p/k1/m1", policy.RateLimited, until(s.now.Add(time.Minute)))
	for range 5 {
		s.end("p/k1/m2", policy.Overloaded)
	}
	s.operate("set-windows", `{"provider": "p", "account": "team", "windows": [{"name": "weekly", "used": 1}]}`)
	s.operate("set-health", `{"provider": "p", "key": "k2", "health": 0, "format": "openai"}`)

	var answer struct {
		Store struct{ Kind string }
		Keys  []struct {
			Provider, Key, Version string
			Requests               int
			Circuits               map[string]struct {
				Open     bool
				Failures int
				Until    time.Time
			}
			Rests  []struct{ Reason, Format string }
			Models []struct {
				Model    string
				Cooldown *struct{ Until time.Time }
				Rests    []struct{ Reason string }
			}
		}
		Accounts []struct {
			Account string
			Windows []struct {
				Name string
				Used float64
			}
			Rests []struct{ Reason, Detail string }
		}
	}
	decode := func(input string) {
		t.Helper()
		answer.Keys, answer.Accounts = nil, nil
		if err := json.Unmarshal([]byte(s.operate("status", input)), &answer); err != nil {
			t.Fatal(err)
		}
	}
	decode("")
	if n := len(answer.Keys); n != 3 || answer.Store.Kind != "memory" {
		t.Fatalf("%d keys in store %q, want 3 in memory", n, answer.Store.Kind)
	}
	k1, k2 := answer.Keys[0], answer.Keys[1]
	if c := k1.Circuits["openai"]; k1.Requests != 6 || !c.Open || c.Failures != 5 || !c.Until.After(s.now) {
		t.Errorf("p/k1: %+v", k1)
	}
	if len(k1.Rests) != 1 || k1.Rests[0].Reason != "circuit_open" || k1.Rests[0].Format != "openai" {
		t.Errorf("p/k1 rests for %v", k1.Rests)
	}
	if m := k1.Models; len(m) != 2 || m[0].Cooldown == nil || !m[0].Cooldown.Until.Equal(s.now.Add(time.Minute)) || m[0].Rests[0].Reason != "cooldown" {
		t.Errorf("p/k1's models: %+v", m)
	}
	if k2.Version != "v7" || len(k2.Rests) != 1 || k2.Rests[0].Reason != "health_zero" || k2.Rests[0].Format != "openai" {
		t.Errorf("p/k2: %+v", k2)
	}
	if a := answer.Accounts; len(a) != 1 || a[0].Account != "team" || a[0].Windows[0].Name != "weekly" || a[0].Rests[0].Reason != "account_quota" {
		t.Errorf("accounts: %+v", a)
	}
	decode(`{"provider": "p", "key": "k2"}`)
	if len(answer.Keys) != 1 || answer.Keys[0].Key != "k2" || len(answer.Accounts) != 0 {
		t.Errorf("status of k2: %+v", answer)
	}
}

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/examples/simulator"
)

// fail lets requests to the provider fail.
func (p *provider) fail(t *testing.T, f simulator.Fault) {
	t.Helper()
	body, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(p.url+"/simulator/faults", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		t.Fatalf("faults: %s", resp.Status)
	}
}

// verdict is what a decision says of a candidate.
type verdict struct {
	Candidate, Verdict, Reason string
	Observed, Limit            float64
	Until                      time.Time
}

// verdicts returns what was said first of each candidate for a request.
func (u *usher) verdicts(t *testing.T, a answer) map[string]verdict {
	t.Helper()
	all := make(map[string]verdict)
	eventually(t, longTime, func() error {
		var d struct {
			Selections []struct{ Verdicts []verdict }
		}
		text := u.adminGet(t, "/usher/decisions/"+a.header.Get("X-Usher-Request-Id"))
		if err := json.Unmarshal([]byte(text), &d); err != nil || len(d.Selections) == 0 {
			return fmt.Errorf("decision %s: %v", text, err)
		}
		for _, v := range d.Selections[0].Verdicts {
			all[v.Candidate] = v
		}
		return nil
	})
	return all
}

// firstKeyFirst prefers the first key.
const firstKeyFirst = "\nselect keys {\norder priority\n}\n"

const k1, k2 = "openai/k1/gpt-4o", "openai/k2/gpt-4o"

// A key that its provider limits rests as long as that says, the other one
// serves meanwhile, and no caller notices.
func TestAKeyRestsAsLongAsItsProviderSays(t *testing.T) {
	t.Parallel()
	const rest = 3 * time.Second
	p := startProvider(t, twoKeys(10, 10, ""))
	u := startUsher(t, setup{usher: p.upstream(10, 10) + firstKeyFirst, env: keyEnv})
	c := newClient(u.url)
	p.fail(t, simulator.Fault{Key: "k1", Status: http.StatusTooManyRequests, RetryAfter: rest.String(), Count: 1})
	asked := 0
	eventually(t, longTime, func() error { // until it serves again
		asked++
		a := c.chat(t.Context(), ask{tag: strconv.Itoa(asked)})
		if err := a.ok(); err != nil {
			t.Fatalf("request %d: %v", asked, err)
		}
		if n := p.stats(t).Keys["k1"].Requests; n < 2 {
			return fmt.Errorf("the key got %d requests", n)
		}
		return nil
	})
	var refused, again time.Time
	for _, r := range p.stats(t).Order {
		switch {
		case r.Key == "k1" && r.Status == http.StatusTooManyRequests:
			refused = r.Start
		case r.Key == "k1" && again.IsZero():
			again = r.Start
		}
	}
	if refused.IsZero() || again.Sub(refused) < rest {
		t.Errorf("the key was refused at %s and asked again at %s, want %s in between", refused, again, rest)
	}
}

// A quota of a week is one: the key rests until it begins anew.
func TestAKeyRestsUntilItsQuotaBeginsAnew(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * time.Hour
	p := startProvider(t, twoKeys(10, 10, ""))
	u := startUsher(t, setup{usher: p.upstream(10, 10) + firstKeyFirst, env: keyEnv})
	c := newClient(u.url)
	began := time.Now()
	p.fail(t, simulator.Fault{Key: "k1", Status: http.StatusTooManyRequests, Code: "insufficient_quota", RetryAfter: week.String(), Count: 1})
	if err := c.chat(t.Context(), ask{}).ok(); err != nil {
		t.Fatal(err)
	}
	var v verdict
	eventually(t, longTime, func() error {
		a := c.chat(t.Context(), ask{})
		if err := a.ok(); err != nil {
			t.Fatal(err)
		}
		if v = u.verdicts(t, a)[k1]; v.Verdict != "skipped" {
			return fmt.Errorf("verdict %+v", v)
		}
		return nil
	})
	if v.Reason != "account_quota" || v.Until.Before(began.Add(week)) || v.Until.After(time.Now().Add(week)) {
		t.Errorf("verdict %+v, want account_quota for a week", v)
	}
}

// A key that its provider refuses is left alone, and no caller sees a 401.
func TestACallerNeverSeesThatAKeyIsRefused(t *testing.T) {
	t.Parallel()
	p := startProvider(t, twoKeys(10, 10, ""))
	u := startUsher(t, setup{usher: p.upstream(10, 10) + firstKeyFirst, env: keyEnv})
	c := newClient(u.url)
	p.fail(t, simulator.Fault{Key: "k1", Status: http.StatusUnauthorized})
	eventually(t, longTime, func() error {
		a := c.chat(t.Context(), ask{})
		if err := a.ok(); err != nil {
			t.Fatal(err)
		}
		if v := u.verdicts(t, a)[k1]; v.Verdict != "skipped" || v.Reason != "account_invalid" {
			return fmt.Errorf("verdict %+v", v)
		}
		return nil
	})
	before := p.stats(t).Keys["k1"].Requests
	for range 20 {
		if err := c.chat(t.Context(), ask{}).ok(); err != nil {
			t.Error(err)
		}
	}
	if after := p.stats(t).Keys["k1"].Requests; after > before+1 { // a probe
		t.Errorf("the key got %d requests more", after-before)
	}
	p.fail(t, simulator.Fault{Key: "k2", Status: http.StatusUnauthorized})
	for range 3 {
		if a := c.chat(t.Context(), ask{}); a.status != http.StatusServiceUnavailable {
			t.Errorf("status %d with no key left, want 503: %s", a.status, a.body)
		}
	}
}

// With all keys at rest a request is refused at once, and told when the first
// of them may serve. An operator who knows better pushes one back.
func TestAllKeysRestUntilOneIsPushedBack(t *testing.T) {
	t.Parallel()
	p := startProvider(t, twoKeys(10, 10, ""))
	u := startUsher(t, setup{usher: p.upstream(10, 10) + firstKeyFirst, env: keyEnv})
	c := newClient(u.url)
	p.fail(t, simulator.Fault{Key: "k1", Status: http.StatusTooManyRequests, RetryAfter: "50m", Count: 1})
	p.fail(t, simulator.Fault{Key: "k2", Status: http.StatusTooManyRequests, RetryAfter: "30m", Count: 1})
	soonest := func(a answer) {
		t.Helper()
		seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
		if a.status != http.StatusTooManyRequests || err != nil || seconds < 20*60 || seconds > 30*60 {
			t.Errorf("status %d, Retry-After %q; want 429, and half an hour: %s", a.status, a.header.Get("Retry-After"), a.body)
		}
	}
	soonest(c.chat(t.Context(), ask{}))
	var a answer
	eventually(t, longTime, func() error { // the policy hears of the end of an attempt a moment later
		a = c.chat(t.Context(), ask{})
		if n := len(u.verdicts(t, a)); n != 2 || u.verdicts(t, a)[k2].Verdict != "skipped" {
			return fmt.Errorf("verdicts %+v", u.verdicts(t, a))
		}
		return nil
	})
	soonest(a)
	if a.header.Get("X-Usher-Reason") != "cooldown" {
		t.Errorf("refused for %q, want cooldown", a.header.Get("X-Usher-Reason"))
	}
	for _, id := range []string{k1, k2} {
		if v := u.verdicts(t, a)[id]; v.Verdict != "skipped" || v.Reason != "cooldown" || v.Until.IsZero() {
			t.Errorf("verdict %+v, want skipped for a cooldown", v)
		}
	}
	asked := p.stats(t).Requests
	soonest(c.chat(t.Context(), ask{}))
	if n := p.stats(t).Requests; n != asked {
		t.Errorf("the provider got %d requests more while its keys rest", n-asked)
	}

	address := strings.TrimPrefix(u.admin, "http://")
	cmd := u.command("policy", "keys", "clear", `{"provider": "openai", "key": "k1"}`, "--address", address)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("usher policy: %v\n%s", err, out)
	}
	a = c.chat(t.Context(), ask{})
	if err := a.ok(); err != nil || a.header.Get("X-Usher-Candidate") != k1 {
		t.Errorf("after the key was pushed back: %v from %q", err, a.header.Get("X-Usher-Candidate"))
	}
	out, err := u.command("policy", "keys", "--address", address).Output()
	if err != nil || !slices.Contains(strings.Fields(string(out)), "k2") && !strings.Contains(string(out), "openai/k2") {
		t.Errorf("usher policy keys shows %s (%v), want what is known of k2", out, err)
	}
}

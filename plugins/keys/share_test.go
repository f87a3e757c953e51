package keys_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/keys"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/policytest"
)

// inStore returns a configuration with a store that several replicas share.
func inStore(t *testing.T, schema, options string) string {
	t.Helper()
	return fmt.Sprintf(`{"store": "postgres", "dsn": %q, "schema": %q%s}`, pgtest.DSN(t), schema, options)
}

// newReplica returns a site that shares what it knows, at a clock that stands
// still where that of the database is.
func newReplica(t *testing.T, schema string, now time.Time, ids ...string) *site {
	t.Helper()
	s := newSite(t, `{}`, ids...)
	s.setNow(now)
	s.plugin.Clock = func() time.Time { return *s.clock.Load() }
	s.configure(inStore(t, schema, `, "order": "priority", "breaker": {"failures": 2}`))
	for i := range s.candidates {
		s.candidates[i].KeyVersion, s.candidates[i].Account = "v1", "team"
	}
	return s
}

// await waits until the site says of a key what is wanted.
func (s *site) await(key, want string) {
	s.t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(time.Minute)
	for i := 0; ; i++ {
		got := s.statusOf(key, "await")
		if got == want {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			s.t.Fatalf("%s is %q, want %q", key, got, want)
		}
	}
}

// What one replica learns, all obey, those that come later, too; and what one
// makes forgotten, all forget.
func TestReplicasKnowTheSame_B40(t *testing.T) {
	t.Parallel()
	fail := func(s *site) {
		s.end("k1", policy.Overloaded)
		s.end("k1", policy.Overloaded)
	}
	about := func(subject policy.Subject) func(*policy.AttemptResult) {
		return func(res *policy.AttemptResult) { res.About = subject }
	}
	for name, c := range map[string]struct {
		tell func(s *site)
		want string
	}{
		"cooldown":           {func(s *site) { s.end("k1", policy.RateLimited, until(s.now.Add(time.Hour))) }, "skipped cooldown"},
		"account's cooldown": {func(s *site) { s.end("k2", policy.RateLimited, about(policy.SubjectAccount)) }, "skipped cooldown"},
		"quota":              {func(s *site) { s.end("k1", policy.QuotaExhausted) }, "skipped account_quota"},
		"window": {func(s *site) {
			s.end("k1", policy.OK, window(policy.Window{Name: "weekly", Used: 1, Resets: s.now.Add(time.Hour)}))
		}, "skipped account_quota (weekly) 1/1"},
		"rate": {func(s *site) {
			s.end("k1", policy.OK, window(policy.Window{Name: "requests", Kind: policy.ScopeRequests, Used: 1, Limit: 9, Length: time.Hour}))
		}, "skipped cooldown (requests) 9/9"},
		"snapshot": {func(s *site) {
			s.operate("set-windows", `{"provider": "p", "account": "team", "windows": [{"name": "weekly", "used": 1}]}`)
		}, "skipped account_quota (weekly) 1/1"},
		"budget": {func(s *site) {
			s.operate("set-windows", `{"provider": "p", "windows": [{"name": "budget", "used": 1}]}`)
		}, "skipped provider_quota (budget) 1/1"},
		"standing": {func(s *site) {
			s.operate("set-account", `{"provider": "p", "key": "k1", "standing": "blocked"}`)
		}, "skipped account_invalid (blocked)"},
		"health":          {func(s *site) { s.operate("set-health", `{"provider": "p", "key": "k1", "health": 0}`) }, "skipped health_zero"},
		"refusal":         {func(s *site) { s.end("k1", policy.AuthFailed, status(401)) }, "skipped account_invalid (key)"},
		"model's refusal": {func(s *site) { s.end("k1", policy.AuthFailed, status(403)) }, "skipped account_invalid (model)"},
		"breaker":         {fail, "skipped circuit_open 2/2"},
		"learned limit": {func(s *site) {
			s.end("k1", policy.OK, window(policy.Window{Name: "requests", Kind: policy.ScopeRequests, Length: time.Minute, Limit: 1, Used: 0.5}))
		}, "eligible"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema, now := pgtest.Schema(), time.Now()
			a := newReplica(t, schema, now, "k1", "k2")
			b := newReplica(t, schema, now, "k1", "k2")
			c.tell(a)
			b.await("k1", c.want)
			late := newReplica(t, schema, now, "k1", "k2")
			late.await("k1", c.want)
			if name == "learned limit" {
				b.send("k1", 1)
				b.await("k1", "busy key_requests (learned) 1/1")
			}
			b.wait(time.Second)
			for _, of := range []string{`"key": "k1"`, `"account": "team"`, `"model": "", "key": ""`} {
				b.operate("clear", `{"provider": "p", `+of+`}`)
			}
			for _, s := range []*site{a, b, late} {
				s.await("k1", "eligible")
			}
		})
	}
}

// A probe that one replica sends is known to the others soon, and so is how it
// ends.
func TestReplicasKnowOfProbes(t *testing.T) {
	t.Parallel()
	schema, now := pgtest.Schema(), time.Now()
	a := newReplica(t, schema, now, "k1")
	b := newReplica(t, schema, now, "k1")
	a.end("k1", policy.Overloaded)
	a.end("k1", policy.Overloaded)
	b.await("k1", "skipped circuit_open 2/2")
	a.wait(time.Minute)
	a.expectFor("probe", "k1 eligible")
	a.expect("k1 skipped circuit_open (probe) 2/2 for 30s")
	for {
		b.setNow(now) // the probe is not due here, so that asking takes none
		known := b.operate("status", `{"provider": "p"}`)
		if strings.Contains(known, `"probe":"probe"`) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	b.setNow(a.now)
	if got := b.statusOf("k1", "x"); got != "skipped circuit_open (probe) 2/2" {
		t.Errorf("k1 is %q at the other replica", got)
	}
	a.wait(time.Second)
	a.endFor("probe", "k1", policy.OK, took(time.Millisecond))
	b.await("k1", "eligible")
}

// What was said of a key before anybody used it counts for the secret that comes
// first, on all replicas, and for no other.
func TestReplicasTakeOverWhatWasSaidEarly(t *testing.T) {
	t.Parallel()
	schema, now := pgtest.Schema(), time.Now()
	a := newReplica(t, schema, now)
	a.operate("set-account", `{"provider": "p", "key": "k1", "standing": "revoked"}`)
	b := newReplica(t, schema, now, "k1")
	b.await("k1", "skipped oauth_invalid (revoked)")
	b.candidate("k1").KeyVersion = "v2"
	b.expect("k1 eligible")
	c := newReplica(t, schema, now, "k1")
	c.await("k1", "skipped oauth_invalid (revoked)")
	c.candidate("k1").KeyVersion = "v2"
	c.await("k1", "eligible")
}

// A reload keeps the store, and the last to leave closes it.
func TestStoreSurvivesAReload(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	s := newReplica(t, schema, time.Now(), "k1")
	s.end("k1", policy.QuotaExhausted)
	s.configure(inStore(t, schema, `, "cooldown": "1s"`))
	s.expect("k1 skipped account_quota for " + s.ask(policy.Request{ID: "x"})[0].Until.Sub(s.now).String())
}

// While the database is away, each replica goes on with what it knows and says
// so.
func TestStoreOutOfReach(t *testing.T) {
	t.Parallel()
	s := newSite(t, `{"store": "postgres", "dsn": "host=127.0.0.1 port=1 user=nobody connect_timeout=1"}`, "k1", "k2")
	s.end("k1", policy.QuotaExhausted)
	if got := s.statusOf("k1", "x"); got != "skipped account_quota" {
		t.Errorf("k1 is %q", got)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		var answer struct {
			Store struct {
				Kind, Error string
				Connected   bool
				Untold      int
			}
		}
		if err := json.Unmarshal([]byte(s.operate("status", "")), &answer); err != nil {
			t.Fatal(err)
		}
		st := answer.Store
		if st.Kind == "postgres" && !st.Connected && st.Untold == 1 && strings.Contains(st.Error, "127.0.0.1") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("status says %+v", st)
		}
	}
}

func TestKeepsTheContractInAStore(t *testing.T) {
	t.Parallel()
	policytest.TestDefinition(t, func() sdk.Definition { return keys.New().Definition() }, inStore(t, pgtest.Schema(), ``))
}

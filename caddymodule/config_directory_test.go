package caddymodule_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/policy"
)

func hash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func directoryOf(t *testing.T, config string) *caddymodule.Directory {
	t.Helper()
	dir, err := with(t, config).Directory(caddy.NewReplacer())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func concurrency(id string, limit int64) policy.Scope {
	return policy.Scope{ID: id, Kind: policy.ScopeConcurrency, Limit: limit}
}

func TestIdentifyByKeyAndPlaceholder(t *testing.T) {
	t.Setenv("USHER_TEST_ALICE", "sk-alice")
	dir := directoryOf(t, fmt.Sprintf(`{
		"callers": [
			{"id": "alice", "key": "{env.USHER_TEST_ALICE}", "key_sha256": %q, "group": "research", "priority": 10,
				"limits": [{"kind": "concurrency", "limit": 4}]},
			{"id": "bob", "key_sha256": %q},
			{"id": "carol", "priority": -1}
		],
		"caller_id": "{test.user}",
		"groups": [{"name": "ops"}, {"name": "research", "limits": [{"kind": "concurrency", "limit": 20}]}],
		"limits": [{"kind": "concurrency", "limit": 200}]
	}`, hash("sk-alice-old"), hash("sk-bob")))
	fleet := concurrency("fleet", 200)
	alice := caddymodule.Identity{
		Caller: policy.Caller{ID: "alice", Group: "research"}, Priority: 10,
		Scopes: []policy.Scope{concurrency("caller:alice", 4), concurrency("group:research", 20), fleet},
	}
	bob := caddymodule.Identity{Caller: policy.Caller{ID: "bob"}, Scopes: []policy.Scope{fleet}}
	carol := caddymodule.Identity{Caller: policy.Caller{ID: "carol"}, Priority: -1, Scopes: []policy.Scope{fleet}}
	dave := caddymodule.Identity{Caller: policy.Caller{ID: "dave"}, Scopes: []policy.Scope{fleet}}

	tests := map[string]struct {
		key, user string
		want      caddymodule.Identity
		ok        bool
	}{
		"key":                         {"sk-alice", "", alice, true},
		"key by its hash":             {"sk-alice-old", "", alice, true},
		"another key":                 {"sk-bob", "", bob, true},
		"key before placeholder":      {"sk-bob", "carol", bob, true},
		"listed placeholder":          {"", "carol", carol, true},
		"unlisted placeholder":        {"", "dave", dave, true},
		"unknown key and placeholder": {"sk-mallory", "dave", dave, true},
		"unknown key":                 {"sk-mallory", "", caddymodule.Identity{}, false},
		"nothing":                     {"", "", caddymodule.Identity{}, false},
		"endless placeholder":         {"", strings.Repeat("x", 257), caddymodule.Identity{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			repl := caddy.NewReplacer()
			if test.user != "" {
				repl.Set("test.user", test.user)
			}
			got, ok := dir.Identify(test.key, repl)
			if ok != test.ok || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, %t; want %+v, %t", got, ok, test.want, test.ok)
			}
		})
	}
}

func TestOpenSiteAdmitsEverybody(t *testing.T) {
	t.Parallel()
	dir := directoryOf(t, `{"limits": [{"kind": "concurrency", "limit": 2}]}`)
	got, ok := dir.Identify("any", caddy.NewReplacer())
	want := caddymodule.Identity{Scopes: []policy.Scope{concurrency("fleet", 2)}}
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %t; want %+v", got, ok, want)
	}
}

func TestKeysOnlySiteRefusesStrangers(t *testing.T) {
	t.Parallel()
	dir := directoryOf(t, fmt.Sprintf(`{"callers": [{"id": "a", "key_sha256": %q}]}`, hash("sk-a")))
	for _, key := range []string{"", "sk-b", hash("sk-a")} {
		if id, ok := dir.Identify(key, caddy.NewReplacer()); ok {
			t.Errorf("the key %q was taken for that of %+v", key, id)
		}
	}
}

func TestDirectoryReportsSharedAndMissingKeys(t *testing.T) {
	t.Setenv("USHER_TEST_ALICE", "sk-alice")
	c := with(t, fmt.Sprintf(`{
		"callers": [
			{"id": "alice", "key": "{env.USHER_TEST_ALICE}", "key_sha256": %[1]q},
			{"id": "bob", "key_sha256": %[1]q},
			{"id": "carol", "key": "{env.USHER_TEST_UNSET}"}
		],
		"source": {"/callers/1": "Caddyfile:7", "/callers/2/key": "Caddyfile:9"}
	}`, hash("sk-alice")))
	want := "Caddyfile:7: caller bob: its key is also that of caller alice; give each its own\n" +
		"Caddyfile:9: caller carol: key: {env.USHER_TEST_UNSET} is unset or empty; set the variable in the environment of this process"
	if _, err := c.Directory(caddy.NewReplacer()); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

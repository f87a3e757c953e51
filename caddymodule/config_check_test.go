package caddymodule_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/usherproxy/usher/caddymodule"
)

// minimal is the smallest configuration without a fault.
const minimal = `{
	"providers": [{"name": "p", "url": "https://example.com", "keys": [{"name": "k", "secret": "none"}]}],
	"models": [{"name": "m", "serve": [{"provider": "p"}]}]
}`

func parse(t *testing.T, config string) *caddymodule.Config {
	t.Helper()
	var c caddymodule.Config
	if err := caddy.StrictUnmarshalJSON([]byte(config), &c); err != nil {
		t.Fatalf("decode %s: %v", config, err)
	}
	return &c
}

// with returns the minimal configuration with some fields set otherwise.
func with(t *testing.T, fields string) *caddymodule.Config {
	t.Helper()
	config := make(map[string]json.RawMessage)
	for _, s := range []string{minimal, fields} {
		if err := json.Unmarshal([]byte(s), &config); err != nil {
			t.Fatalf("decode %s: %v", s, err)
		}
	}
	merged, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(merged))
}

// Golden files cover what a Caddyfile can express; this is about JSON.
func TestCheckReportsFaultsOfJSON(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fields string
		want   string
	}{
		"no fault":                 {`{}`, ``},
		"literal secret":           {`{"providers": [{"name": "p", "url": "https://example.com", "keys": [{"name": "k", "secret": "sk-live"}]}]}`, `provider p: key k: the secret must not be written here, where whoever may read the configuration can read it; use {env.VARIABLE} or {file./path}`},
		"missing secret":           {`{"providers": [{"name": "p", "url": "https://example.com", "keys": [{"name": "k"}]}]}`, `provider p: key k: the secret is missing; use {env.VARIABLE} or {file./path}`},
		"missing url":              {`{"providers": [{"name": "p", "keys": [{"name": "k", "secret": "none"}]}]}`, `provider p: url: is missing`},
		"missing name":             {`{"providers": [{"name": "p", "url": "https://example.com", "keys": [{"secret": "none"}]}]}`, `provider p: key "": the name is missing`},
		"version of another's":     {`{"providers": [{"name": "p", "format": "gemini", "api_version": "1", "url": "https://example.com", "keys": [{"name": "k", "secret": "none"}]}]}`, `provider p: api_version: is for the format openai only, and this provider's is gemini`},
		"hostile name":             {`{"groups": [{"name": "a\nb"}]}`, `group "a\nb": a name consists of letters, digits and . _ : -, and at most 256 of them`},
		"long name":                {`{"groups": [{"name": "` + strings.Repeat("a", 257) + `"}]}`, `group "` + strings.Repeat("a", 257) + `": a name consists of letters, digits and . _ : -, and at most 256 of them`},
		"negative body":            {`{"max_body": -1}`, `max_body: must be at least 1 byte`},
		"negative timeout":         {`{"timeout": -1}`, `timeout: must be longer than 0`},
		"negative attempts":        {`{"attempts": -1}`, `attempts: must be between 1 and 100, not -1`},
		"negative window":          {`{"limits": [{"kind": "tokens", "limit": 1, "window": -5}]}`, `limit tokens: needs a window longer than 0; write it like: limit tokens 100/1m`},
		"negative policy timeout":  {`{"select": [{"policy": "keys", "timeout": "-1s"}]}`, `select keys: timeout: must be longer than 0`},
		"options are no object":    {`{"admit": [{"policy": "fifo", "config": [1]}]}`, `admit fifo: config: must be a JSON object`},
		"literal caller key":       {`{"callers": [{"id": "a", "key": "sk-live"}]}`, `caller a: key: the secret must not be written here, where whoever may read the configuration can read it; use {env.VARIABLE} or {file./path}`},
		"callers cannot have none": {`{"callers": [{"id": "a", "key": "none"}]}`, `caller a: key: the secret must not be written here, where whoever may read the configuration can read it; use {env.VARIABLE} or {file./path}`},
		"short hash":               {`{"callers": [{"id": "a", "key_sha256": "abcd"}]}`, `caller a: key_sha256: the hash of a key must be 64 hexadecimal digits, as from: printf %s "$KEY" | sha256sum`},
		"two faults": {`{"max_body": -1, "attempts": 101}`, `max_body: must be at least 1 byte
attempts: must be between 1 and 100, not 101`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if err := with(t, test.fields).Check(); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if strings.Contains(got, "sk-live") {
				t.Errorf("the error shows the secret: %s", got)
			}
		})
	}
}

func TestCheckSortsFaultsByLine(t *testing.T) {
	t.Parallel()
	c := with(t, `{
		"attempts": 200, "max_body": -1, "timeout": -1, "limits": [{"kind": "x", "limit": 1}],
		"source": {"": "b:1", "/attempts": "b:9", "/max_body": "b:10", "/timeout": "a:11"}
	}`)
	want := `a:11: timeout: must be longer than 0
b:1: limit x: no such kind; use one of concurrency, requests, tokens
b:9: attempts: must be between 1 and 100, not 200
b:10: max_body: must be at least 1 byte`
	if got := c.Check().Error(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestCheckAcceptsDefaults(t *testing.T) {
	t.Parallel()
	c := parse(t, minimal)
	c.SetDefaults()
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	got, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"providers":[{"name":"p","format":"openai","url":"https://example.com","timeouts":{"first_event":300000000000,"idle":300000000000},"keys":[{"name":"k","secret":"none"}]}],` +
		`"models":[{"name":"m","serve":[{"provider":"p"}]}],` +
		`"select":[{"policy":"keys","timeout":2000000000,"on_error":"closed"}],` +
		`"admit":[{"policy":"fifo","timeout":2000000000,"on_error":"closed"}],` +
		`"max_body":104857600,"timeout":600000000000,"session":{"idle":900000000000,"age":3600000000000},"attempts":3}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCheckReportsFaultsOfPlugins(t *testing.T) {
	t.Parallel()
	a := caddymodule.AppConfig{Plugins: []caddymodule.Plugin{
		{Name: "fair", Env: map[string]string{"A": "\x00", "": "x"}, StartTimeout: -1},
		{Name: "pinned", Path: "./pinned", Checksum: "e3b0c442"},
		{Name: "attached", Path: "./attached", Attach: "/tmp/s", User: "nobody"},
	}}
	want := `plugin fair: path: is missing
plugin fair: env: "" is no name of a variable, or its value holds a zero byte
plugin fair: env: "A" is no name of a variable, or its value holds a zero byte
plugin fair: start_timeout: must be longer than 0
plugin pinned: checksum: write sha256: and 64 hexadecimal digits, as of: sha256sum ./pinned
plugin attached: attach: what was started by hand has no checksum, user, group, workdir or auto_mtls; remove them`
	if got := a.Check(); got == nil || got.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", got, want)
	}
}

func TestAppDefaults(t *testing.T) {
	t.Parallel()
	a := caddymodule.AppConfig{Plugins: []caddymodule.Plugin{{Name: "fair", Path: "/x/fair"}}}
	a.SetDefaults()
	if err := a.Check(); err != nil {
		t.Error(err)
	}
	if got := a.Plugins[0].StartTimeout; got != caddy.Duration(10e9) {
		t.Errorf("start_timeout is %d, want 10s", got)
	}
}

func TestUnknownFieldsAreErrors(t *testing.T) {
	t.Parallel()
	for _, config := range []string{
		`{"provider": []}`,
		`{"providers": [{"api_key": "x"}]}`,
		`{"providers": [{"keys": [{"value": "x"}]}]}`,
		`{"models": [{"aliases": []}]}`,
		`{"callers": [{"name": "x"}]}`,
		`{"admit": [{"policy": "fifo", "max_wait": "1s"}]}`,
		`{"limits": [{"rpm": 5}]}`,
	} {
		var c caddymodule.Config
		if err := caddy.StrictUnmarshalJSON([]byte(config), &c); err == nil {
			t.Errorf("%s was accepted", config)
		}
	}
}

func TestSourceMapFindsTheNearestPart(t *testing.T) {
	t.Parallel()
	m := caddymodule.SourceMap{"": "f:1", "/admit/0": "f:5", "/admit/0/config/a~1b": "f:6"}
	for pointer, want := range map[string]string{
		"":                       "f:1",
		"/models/3":              "f:1",
		"/admit/0":               "f:5",
		"/admit/0/timeout":       "f:5",
		"/admit/0/config/a~1b":   "f:6",
		"/admit/0/config/a~1b/c": "f:6",
		"/admit/01":              "f:1",
	} {
		if got := m.At(pointer); got != want {
			t.Errorf("%q is at %q, want %q", pointer, got, want)
		}
	}
	if got := caddymodule.SourceMap(nil).At("/x"); got != "" {
		t.Errorf("an empty map found %q", got)
	}
}

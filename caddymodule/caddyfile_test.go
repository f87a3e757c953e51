package caddymodule_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/usherproxy/usher/caddymodule"
)

// FuzzUnmarshalCaddyfile asks of any tokens: no panic, and what is accepted
// becomes JSON that decodes strictly to the same configuration.
func FuzzUnmarshalCaddyfile(f *testing.F) {
	files, err := filepath.Glob("testdata/caddyfile_adapt/*.caddyfiletest")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		input, _, _ := strings.Cut(string(data), adaptSeparator)
		if i := strings.LastIndex(input, "\tusher"); i >= 0 {
			f.Add(strings.TrimSuffix(strings.TrimSpace(input[i:]), "}"))
		}
	}
	f.Fuzz(func(t *testing.T, input string) {
		tokens, err := caddyfile.Tokenize([]byte(input), "Caddyfile")
		if err != nil || len(tokens) == 0 {
			return
		}
		fuzzGlobalOption(t, tokens)
		var c caddymodule.Config
		if err := c.UnmarshalCaddyfile(caddyfile.NewDispenser(tokens)); err != nil {
			return
		}
		once := marshal(t, &c)
		if caddyconfig.JSONModuleObject(&c, "handler", "usher", nil) == nil {
			t.Fatalf("Caddy cannot encode %s", once)
		}
		var again caddymodule.Config
		if err := caddy.StrictUnmarshalJSON(once, &again); err != nil {
			t.Fatalf("decode %s: %v", once, err)
		}
		if twice := marshal(t, &again); !bytes.Equal(once, twice) {
			t.Fatalf("%s\nbecame\n%s", once, twice)
		}
		if again.Check() == nil {
			again.Candidates()
		}
	})
}

func fuzzGlobalOption(t *testing.T, tokens []caddyfile.Token) {
	t.Helper()
	app, err := caddymodule.ParseGlobalOption(caddyfile.NewDispenser(tokens), nil)
	if err == nil {
		marshal(t, app)
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

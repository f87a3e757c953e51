package simulator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/usherproxy/usher/examples/simulator"
)

// Each file of testdata has a Caddyfile, a line of dashes, and the JSON or the
// error that it becomes.
func TestCaddyfileAdapts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(b), "\n----------\n")
			if got := adapt(input); got != strings.TrimSpace(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func adapt(input string) string {
	adapter := caddyfile.Adapter{ServerType: httpcaddyfile.ServerType{}}
	config, _, err := adapter.Adapt([]byte(input), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err.Error()
	}
	var out bytes.Buffer
	if err := json.Indent(&out, config, "", "\t"); err != nil {
		return err.Error()
	}
	return out.String()
}

func TestValidateNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	key := func(k simulator.Key) simulator.Provider {
		k.Name, k.Secret = "k1", "s"
		return simulator.Provider{Keys: []simulator.Key{k}}
	}
	for want, p := range map[string]simulator.Provider{
		"tokens must not be negative":      {Tokens: -1},
		"between 0 and 1":                  {ErrorRate: 1.5},
		"error_status is 200":              {ErrorStatus: 200},
		"a name and a secret":              {Keys: []simulator.Key{{Name: "k1"}}},
		"declared twice":                   {Keys: []simulator.Key{{Name: "k1", Secret: "a"}, {Name: "k1", Secret: "b"}}},
		"concurrency must not be negative": key(simulator.Key{Concurrency: -1}),
		"such as 60/1m":                    key(simulator.Key{Requests: &simulator.Rate{Limit: 60}}),
		"status is 99":                     key(simulator.Key{Status: 99}),
		"retry_after must not":             key(simulator.Key{RetryAfter: -1}),
	} {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
		p.Name = t.Name()
		err := p.Provision(ctx)
		if err == nil {
			err = p.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		if err := p.Cleanup(); err != nil {
			t.Error(err)
		}
		cancel()
	}
}

func TestKeysDoNotShareASecret(t *testing.T) {
	t.Parallel()
	p := simulator.Provider{Keys: []simulator.Key{{Name: "k1", Secret: "a"}, {Name: "k2", Secret: "a"}}}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	if err := p.Provision(ctx); err == nil || !strings.Contains(err.Error(), "k1 and k2") {
		t.Errorf("error %v, want one that names the keys", err)
	}
	if err := p.Cleanup(); err != nil {
		t.Error(err)
	}
}

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/usherproxy/usher/examples/simulator"
)

// provider is a simulated provider. It runs in the process of the test, so it
// outlives any Usher.
type provider struct {
	name, url string
}

var providers atomic.Int64

// startProvider serves a simulated provider with the given options.
func startProvider(t *testing.T, options string) *provider {
	t.Helper()
	p := &provider{name: fmt.Sprintf("provider%d", providers.Add(1))}
	var handler simulator.Provider
	text := fmt.Sprintf("simulated_provider %s {\n%s\n}", p.name, options)
	if err := handler.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	if err := handler.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	if err := handler.Validate(); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = handler.ServeHTTP(w, r, nil) // fails only for a client who left
	}))
	p.url = srv.URL
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		cancel()
		if err := handler.Cleanup(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// stats returns what the provider has counted.
func (p *provider) stats(t *testing.T) simulator.Stats {
	t.Helper()
	resp, err := http.Get(p.url + "/simulator/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var s simulator.Stats
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// running waits until the provider runs n requests.
func (p *provider) running(t *testing.T, within time.Duration, n int) {
	t.Helper()
	eventually(t, within, func() error {
		if got := p.stats(t).InFlight; got != n {
			return fmt.Errorf("the provider runs %d requests, want %d", got, n)
		}
		return nil
	})
}

// limitsKept checks that no limit of the provider was ever passed.
func (p *provider) limitsKept(t *testing.T) {
	t.Helper()
	for name, k := range p.stats(t).Keys {
		if k.OverLimit != 0 {
			t.Errorf("key %s got %d of %d requests over its limit, %d at once", name, k.OverLimit, k.Requests, k.MaxInFlight)
		}
	}
}

// started returns the tags of the requests that reached the provider, in order.
func (p *provider) started(t *testing.T) []string {
	t.Helper()
	var tags []string
	for _, r := range p.stats(t).Order {
		tags = append(tags, r.Tag)
	}
	return tags
}

// startOf returns when the request of a tag reached the provider.
func (p *provider) startOf(t *testing.T, within time.Duration, tag string) time.Time {
	t.Helper()
	var start time.Time
	eventually(t, within, func() error {
		for _, r := range p.stats(t).Order {
			if r.Tag == tag {
				start = r.Start
				return nil
			}
		}
		return fmt.Errorf("no request %q", tag)
	})
	return start
}

// twoKeys are the options of a provider with keys of the given concurrency,
// and keyEnv the environment in which upstream's block finds them.
func twoKeys(k1, k2 int, options string) string {
	return fmt.Sprintf("key k1 sk-e2e-one {\nconcurrency %d\n}\nkey k2 sk-e2e-two {\nconcurrency %d\n}\n%s", k1, k2, options)
}

var keyEnv = []string{"E2E_KEY_1=sk-e2e-one", "E2E_KEY_2=sk-e2e-two"}

// upstream is a provider's block in a Caddyfile, with two limited keys.
func (p *provider) upstream(k1, k2 int, more ...string) string {
	return fmt.Sprintf(`provider openai %s {
		key k1 {env.E2E_KEY_1} {
			limit concurrency %d
		}
		key k2 {env.E2E_KEY_2} {
			limit concurrency %d
		}
		%s
	}
	model gpt-4o openai`, p.url, k1, k2, strings.Join(more, "\n"))
}

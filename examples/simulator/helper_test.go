package simulator_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/usherproxy/usher/examples/simulator"
)

const timeout = 30 * time.Second

// start serves the provider that a Caddyfile directive declares, and returns
// its URL. Each test takes a name of its own: providers of one name share
// their counts.
func start(t *testing.T, directive string) string {
	t.Helper()
	var p simulator.Provider
	if err := p.UnmarshalCaddyfile(caddyfile.NewTestDispenser(directive)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	if err := p.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := p.ServeHTTP(w, r, nil); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
	}))
	t.Cleanup(func() {
		srv.Close()
		cancel()
		if err := p.Cleanup(); err != nil {
			t.Error(err)
		}
	})
	return srv.URL
}

// reply is an answer as a client got it.
type reply struct {
	status int
	header http.Header
	body   string
}

// send sends a request to a provider.
func send(ctx context.Context, t *testing.T, method, url, key, body string) (reply, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b)}, err
}

// ask sends a request that must be answered.
func ask(t *testing.T, method, url, key, body string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	r, err := send(ctx, t, method, url, key, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return r
}

// decode returns the reply's JSON.
func (r reply) decode(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), v); err != nil {
		t.Fatalf("%v in %s", err, r.body)
	}
}

// events returns the data of the reply's server-sent events.
func (r reply) events(t *testing.T) []map[string]any {
	t.Helper()
	var all []map[string]any
	for sc := bufio.NewScanner(strings.NewReader(r.body)); sc.Scan(); {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var v map[string]any
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		all = append(all, v)
	}
	return all
}

func stats(t *testing.T, url string) simulator.Stats {
	t.Helper()
	var s simulator.Stats
	ask(t, "GET", url+"/simulator/stats", "", "").decode(t, &s)
	return s
}

// eventually waits until the provider's counts are as wanted.
func eventually(t *testing.T, url, what string, ok func(simulator.Stats) bool) simulator.Stats {
	t.Helper()
	for end := time.Now().Add(timeout); ; time.Sleep(2 * time.Millisecond) {
		s := stats(t, url)
		if ok(s) {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s; the counts are %+v", timeout, what, s)
		}
	}
}

package simulator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

// A process has one Caddy, so no test runs beside this one.
//
// Invariant 3.
func TestCountsOutliveAReload(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	load := func() {
		adapter := caddyfile.Adapter{ServerType: httpcaddyfile.ServerType{}}
		config, _, err := adapter.Adapt(fmt.Appendf(nil, `{
			admin off
			persist_config off
			log {
				output discard
			}
		}
		http:// {
			bind unix/%s
			simulated_provider reloaded
		}`, socket), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := caddy.Load(config, true); err != nil {
			t.Fatal(err)
		}
	}
	load()
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // a reload closes idle connections
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	// A server that stops may close a connection before it reads from it, and Caddy starts
	// the new one beside the old. Such a request was not counted, so it is sent again.
	do := func(method, url, body string) *http.Response {
		for {
			req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if errors.Is(err, io.EOF) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
	}
	post := func(tag, stream string) {
		body := strings.Replace(tagged(tag), "{", `{"stream":`+stream+`,`, 1)
		resp := do(http.MethodPost, "http://simulator"+chat, body)
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(b), "provider=reloaded") {
			t.Errorf("status %d, error %v, body %s", resp.StatusCode, err, b)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	post("first", "false")
	post("second", "true")
	load()
	post("third", "true")

	resp := do(http.MethodGet, "http://simulator/simulator/stats", "")
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if got := orderOf(t, b); got != "first second third" {
		t.Errorf("order %q", got)
	}
}

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/usherproxy/usher/internal/pgserver"
)

// metric returns the last value of a metric, and the resource that has sent it.
func (c *collector) metric(t *testing.T, name string) (value, service string) {
	t.Helper()
	b, err := os.ReadFile(c.metrics)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	type points struct {
		DataPoints []struct {
			AsInt string `json:"asInt"`
		} `json:"dataPoints"`
	}
	for line := range bytes.Lines(b) {
		var doc struct {
			ResourceMetrics []struct {
				Resource struct {
					Attributes attributes `json:"attributes"`
				} `json:"resource"`
				ScopeMetrics []struct {
					Metrics []struct {
						Name  string `json:"name"`
						Gauge points `json:"gauge"`
					} `json:"metrics"`
				} `json:"scopeMetrics"`
			} `json:"resourceMetrics"`
		}
		if json.Unmarshal(line, &doc) != nil {
			continue // the last line may still be growing
		}
		for _, resource := range doc.ResourceMetrics {
			for _, scope := range resource.ScopeMetrics {
				for _, m := range scope.Metrics {
					if m.Name == name && len(m.Gauge.DataPoints) > 0 {
						value, service = m.Gauge.DataPoints[0].AsInt, resource.Resource.Attributes.text("service.name")
					}
				}
			}
		}
	}
	return value, service
}

// That the database of the shared store is away, and back, reaches the backend of
// whoever is on call.
func TestAnOutageOfTheStoreIsExported(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	p := startTurnstile(t)
	server, err := pgserver.Start("fsync=off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	u := startUsher(t, setup{env: slices.Concat(keyEnv, c.env(), []string{"E2E_DSN=" + server.DSN()}), usher: fmt.Sprintf(`provider openai %s {
		key k1 {env.E2E_KEY_1} {
			limit concurrency 1
		}
	}
	model gpt-4o openai
	admit fifo {
		store postgres
		dsn {env.E2E_DSN}
	}`, p.url)})
	becomes := func(want string) {
		eventually(t, longTime, func() error {
			if value, service := c.metric(t, "usher.fifo.store.up"); value != want || service != "usher-plugin-builtin" {
				return fmt.Errorf("%s says that the store is up: %q, want %q", service, value, want)
			}
			return nil
		})
	}
	becomes("1")
	if err := server.Halt(); err != nil {
		t.Fatal(err)
	}
	becomes("0")
	got := newClient(u.url).begin(t, ask{tag: "meanwhile", whole: true}).wait(t, longTime)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("a request meanwhile: status %d, %v", got.status, got.header)
	}
	if err := server.Continue(); err != nil {
		t.Fatal(err)
	}
	becomes("1")
	if err := newClient(u.url).begin(t, ask{tag: "after", whole: true}).wait(t, longTime).ok(); err != nil {
		t.Error(err)
	}
}

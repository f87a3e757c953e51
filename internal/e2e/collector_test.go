package e2e_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/freeport"
)

// collector is a running OpenTelemetry Collector.
type collector struct {
	address string
	file    string
	metrics string // the file for them
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := &collector{address: fmt.Sprintf("127.0.0.1:%d", freeport.ForTest(t)), file: filepath.Join(dir, "traces.json"), metrics: filepath.Join(dir, "metrics.json")}
	cmd := exec.Command(need(t, filepath.Join(cache, "usher-ci", "collector")), "--config", need(t, "collector/config.yaml"))
	cmd.Env = []string{"E2E_OTLP=" + c.address, "E2E_TRACES=" + c.file, "E2E_METRICS=" + c.metrics}
	runUntilEnd(t, cmd)
	eventually(t, startTimeout, func() error {
		conn, err := net.Dial("tcp", c.address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return c
}

// env is the environment of a program that exports its spans to c.
func (c *collector) env() []string {
	return []string{
		"OTEL_SERVICE_NAME=usher",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + c.address,
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_EXPORTER_OTLP_INSECURE=true",
		"OTEL_BSP_SCHEDULE_DELAY=200",
		"OTEL_METRIC_EXPORT_INTERVAL=200",
	}
}

// span is a span as the collector writes it.
type span struct {
	TraceID  string      `json:"traceId"`
	ID       string      `json:"spanId"`
	ParentID string      `json:"parentSpanId"`
	Name     string      `json:"name"`
	Kind     int         `json:"kind"`
	Start    string      `json:"startTimeUnixNano"`
	End      string      `json:"endTimeUnixNano"`
	Attrs    attributes  `json:"attributes"`
	Events   []spanEvent `json:"events"`

	service string
	parent  *span
}

type spanEvent struct {
	Name  string     `json:"name"`
	Attrs attributes `json:"attributes"`
}

type attributes []struct {
	Key   string `json:"key"`
	Value struct {
		String string `json:"stringValue"`
	} `json:"value"`
}

// The kinds of spans.
const (
	kindServer = 2
	kindClient = 3
)

// text returns an attribute that is a string.
func (a attributes) text(key string) string {
	for _, one := range a {
		if one.Key == key {
			return one.Value.String
		}
	}
	return ""
}

// under tells whether the span has an ancestor of the name.
func (s *span) under(name string) bool {
	for p := s.parent; p != nil; p = p.parent {
		if p.Name == name {
			return true
		}
	}
	return false
}

// traceContext is the context that a caller sends.
type traceContext struct{ traceID, spanID string }

func newTraceContext() traceContext {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // it never fails
	return traceContext{hex.EncodeToString(b[:16]), hex.EncodeToString(b[16:])}
}

func (c traceContext) header() string { return "00-" + c.traceID + "-" + c.spanID + "-01" }

// trace returns the spans of a trace that have arrived, linked to their parents.
func (c *collector) trace(t *testing.T, id string) []*span {
	t.Helper()
	b, err := os.ReadFile(c.file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var all []*span
	byID := map[string]*span{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, len(b)+1)
	for lines.Scan() {
		var doc struct {
			ResourceSpans []struct {
				Resource struct {
					Attributes attributes `json:"attributes"`
				} `json:"resource"`
				ScopeSpans []struct {
					Spans []*span `json:"spans"`
				} `json:"scopeSpans"`
			} `json:"resourceSpans"`
		}
		if json.Unmarshal(lines.Bytes(), &doc) != nil {
			continue // the last line may still be growing
		}
		for _, resource := range doc.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				for _, s := range scope.Spans {
					if s.TraceID != id {
						continue
					}
					s.service = resource.Resource.Attributes.text("service.name")
					byID[s.ID] = s
					all = append(all, s)
				}
			}
		}
	}
	for _, s := range all {
		s.parent = byID[s.ParentID]
	}
	return all
}

// show returns the spans, one a line.
func show(spans []*span) string {
	var b strings.Builder
	for _, s := range spans {
		parent := s.ParentID
		if s.parent != nil {
			parent = s.parent.Name
		}
		fmt.Fprintf(&b, "%s: %q kind %d under %q, %d events\n", s.service, s.Name, s.Kind, parent, len(s.Events))
	}
	return b.String()
}

package caddymodule_test

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spans is the collector that this process and its plugins export to.
var spans *collector

// A collector receives spans by OTLP over HTTP.
type collector struct {
	*httptest.Server

	mu    sync.Mutex
	spans []*span
}

// A span is one span, with what tests look at.
type span struct {
	*tracepb.Span
	service string
}

func newCollector() *collector {
	c := new(collector)
	c.Server = httptest.NewServer(http.HandlerFunc(c.receive))
	return c
}

// environment makes a process export to c.
func (c *collector) environment() map[string]string {
	return map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL,
		"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
		"OTEL_BSP_SCHEDULE_DELAY":     "50",
		"OTEL_METRICS_EXPORTER":       "none",
		"OTEL_LOGS_EXPORTER":          "none",
	}
}

func (c *collector) receive(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body) // what is missing shows below
	}
	raw, err := io.ReadAll(body)
	var req collectorpb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(raw, &req)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		service := attribute(rs.GetResource().GetAttributes(), "service.name")
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				c.spans = append(c.spans, &span{s, service})
			}
		}
	}
}

// trace returns the spans of a trace in the order of their start.
func (c *collector) trace(id string) trace {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found trace
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) == id {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *span) int { return int(a.GetStartTimeUnixNano()) - int(b.GetStartTimeUnixNano()) })
	return found
}

// ofRequest returns the span of a request by its ID, or nil.
func (c *collector) ofRequest(id string) *span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.attr("usher.request.id") == id {
			return s
		}
	}
	return nil
}

// await returns the spans of a trace when it has as many of each name as want
// says, which is like "usher.admit 1".
func (c *collector) await(t *testing.T, id string, want ...string) trace {
	t.Helper()
	var got trace
	eventually(t, func() error {
		got = c.trace(id)
		counts := make(map[string]int)
		for _, s := range got {
			counts[s.GetName()]++
		}
		var lines []string
		for name, n := range counts {
			lines = append(lines, fmt.Sprintf("%s %d", name, n))
		}
		slices.Sort(lines)
		slices.Sort(want)
		if !slices.Equal(lines, want) {
			return fmt.Errorf("the trace has %q, want %q", lines, want)
		}
		return nil
	})
	return got
}

// A trace is the spans of one trace.
type trace []*span

// named returns the nth span of a name, counted from 0.
func (tr trace) named(t *testing.T, name string, n int) *span {
	t.Helper()
	for _, s := range tr {
		if s.GetName() != name {
			continue
		}
		if n == 0 {
			return s
		}
		n--
	}
	t.Fatalf("no span %q in %v", name, tr)
	return nil
}

// String names the spans.
func (s *span) String() string { return s.service + ": " + s.GetName() }

// attr returns an attribute as text, or nothing.
func (s *span) attr(name string) string { return attribute(s.GetAttributes(), name) }

// events returns the events as "name key=value ...", with keys in order and
// without the prefix usher.
func (s *span) events() []string {
	var out []string
	for _, e := range s.GetEvents() {
		parts := []string{}
		for _, kv := range e.GetAttributes() {
			parts = append(parts, strings.TrimPrefix(kv.GetKey(), "usher.")+"="+text(kv.GetValue()))
		}
		slices.Sort(parts)
		out = append(out, strings.Join(append([]string{e.GetName()}, parts...), " "))
	}
	return out
}

// below reports whether s is a child of parent.
func (s *span) below(parent *span) bool {
	return string(s.GetParentSpanId()) == string(parent.GetSpanId())
}

func attribute(kvs []*commonpb.KeyValue, name string) string {
	for _, kv := range kvs {
		if kv.GetKey() == name {
			return text(kv.GetValue())
		}
	}
	return ""
}

func text(v *commonpb.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	case *commonpb.AnyValue_DoubleValue:
		return fmt.Sprint(v.DoubleValue)
	case *commonpb.AnyValue_BoolValue:
		return fmt.Sprint(v.BoolValue)
	}
	return v.String()
}

// newTraceID returns the ID of a new trace, in hexadecimal.
func newTraceID() string { return fmt.Sprintf("%016x%016x", rand.Uint64()|1, rand.Uint64()) }

// callerSpan is the ID of the span of those who call.
const callerSpan = "b7ad6b7169203331"

// eventually waits until check returns nil.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", soon, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

package fifo_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/usherproxy/usher/internal/pgserver"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/policytest"
)

// longTime is for what only must not take for ever.
const longTime = time.Minute

// figures reads what the process measures.
type figures struct{ reader *metric.ManualReader }

// measure makes what is measured from now on known to the test. It sets the provider
// of the process, so the test must not be parallel.
func measure(t *testing.T) figures {
	t.Helper()
	f := figures{metric.NewManualReader()}
	before, provider := otel.GetMeterProvider(), metric.NewMeterProvider(metric.WithReader(f.reader))
	otel.SetMeterProvider(provider)
	t.Cleanup(func() {
		otel.SetMeterProvider(before)
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// of returns the sum of a metric over all points with these attributes, such as
// "usher.fifo.state=running".
func (f figures) of(t *testing.T, name string, with ...string) (sum int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := f.reader.Collect(context.WithoutCancel(t.Context()), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				sum += sumOf(m.Data, with)
			}
		}
	}
	return sum
}

func sumOf(data metricdata.Aggregation, with []string) (sum int64) {
	var points []metricdata.DataPoint[int64]
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		points = d.DataPoints
	case metricdata.Gauge[int64]:
		points = d.DataPoints
	}
	for _, p := range points {
		if hasAll(p.Attributes, with) {
			sum += p.Value
		}
	}
	return sum
}

func hasAll(set attribute.Set, with []string) bool {
	for _, word := range with {
		key, value, _ := strings.Cut(word, "=")
		if v, ok := set.Value(attribute.Key(key)); !ok || v.AsString() != value {
			return false
		}
	}
	return true
}

// becomes waits until a figure has a value.
func (f figures) becomes(t *testing.T, want int64, name string, with ...string) {
	t.Helper()
	for end := time.Now().Add(longTime); ; time.Sleep(10 * time.Millisecond) {
		got := f.of(t, name, with...)
		if got == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s %v is %d, want %d", name, with, got, want)
		}
	}
}

// text collects what is logged. It is safe for concurrent use.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The database goes away and comes back: for each word of on_store_error the metrics, the spans and
// the log tell what becomes of requests meanwhile.
func TestAnOutageIsSeen(t *testing.T) {
	f, spans, log := measure(t), tracetest.NewInMemoryExporter(), &text{}
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("test")
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(was) })
	server, err := pgserver.Start("fsync=off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	modes := map[string]string{"closed": "away", "local": "alone", "open": "alone"} // and who decides without the store
	policies := map[string]sdk.Policies{}
	// admit asks under a span of the mode's name, and tells the result.
	admit := func(mode, when string) (result string) {
		ctx, span := tracer.Start(t.Context(), mode+" "+when)
		defer span.End()
		lease, err := policies[mode].Admission.Admit(ctx, slot(mode+when))
		if err != nil {
			return err.Error()
		}
		if err := lease.Release(ctx, policy.Outcome{}); err != nil {
			t.Error(err)
		}
		return "admitted"
	}
	for mode := range modes {
		policies[mode] = policytest.Build(t, define(),
			fmt.Sprintf(`{"store": "postgres", "dsn": %q, "schema": %q, "on_store_error": %q}`, server.DSN(), "usher_"+mode, mode))
		f.becomes(t, 1, "usher.fifo.store.up", "usher.fifo.on_store_error="+mode, "usher.fifo.schema=usher_"+mode)
		if got := admit(mode, "before"); got != "admitted" {
			t.Errorf("%s: %s", mode, got)
		}
	}
	if got := f.of(t, "usher.fifo.admissions", "usher.fifo.store=shared", "usher.fifo.result=admitted"); got != 3 {
		t.Errorf("%d admissions by the store, want 3", got)
	}

	if err := server.Halt(); err != nil {
		t.Fatal(err)
	}
	for mode, by := range modes {
		f.becomes(t, 0, "usher.fifo.store.up", "usher.fifo.on_store_error="+mode)
		want := "admitted"
		if mode == "closed" {
			awaitNoCredits(t, f, policies[mode])
			want = "request rejected: store_unavailable"
		}
		if got := admit(mode, "meanwhile"); got != want {
			t.Errorf("%s: %s, want %s", mode, got, want)
		}
		if got := attributeOf(t, spans, mode+" meanwhile"); got != by {
			t.Errorf("%s: the span says %q, want %q", mode, got, by)
		}
	}
	if got := f.of(t, "usher.fifo.admissions", "usher.fifo.store=alone", "usher.fifo.result=admitted"); got != 2 {
		t.Errorf("%d admissions without the store, want 2", got)
	}
	if got := f.of(t, "usher.fifo.admissions", "usher.fifo.store=away", "usher.fifo.result=store_unavailable"); got == 0 {
		t.Error("no refusal is counted")
	}
	if err := server.Continue(); err != nil {
		t.Fatal(err)
	}
	for mode := range modes {
		f.becomes(t, 1, "usher.fifo.store.up", "usher.fifo.on_store_error="+mode)
		if got := admit(mode, "after"); got != "admitted" {
			t.Errorf("%s: %s", mode, got)
		}
		if got := attributeOf(t, spans, mode+" after"); got != "" {
			t.Errorf("%s: the span says %q of the store", mode, got)
		}
	}
	for _, line := range []string{"the store of leases is out of reach\"", "going on alone", "the store of leases is back\"", "admitting nobody until"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("nothing in the log says %q:\n%s", line, log)
		}
	}
}

// awaitNoCredits waits until requests are refused: what was lent may be used for a while.
func awaitNoCredits(t *testing.T, f figures, p sdk.Policies) {
	t.Helper()
	for end := time.Now().Add(longTime); ; time.Sleep(50 * time.Millisecond) {
		lease, err := p.Admission.Admit(t.Context(), slot("credit"))
		if err != nil {
			return
		}
		if err := lease.Release(t.Context(), policy.Outcome{}); err != nil {
			t.Error(err)
		}
		if time.Now().After(end) {
			t.Fatalf("nobody is refused; %d run", f.of(t, "usher.fifo.requests", "usher.fifo.state=running"))
		}
	}
}

// attributeOf returns what the one span of a name says of the store.
func attributeOf(t *testing.T, spans *tracetest.InMemoryExporter, name string) (by string) {
	t.Helper()
	for _, s := range spans.GetSpans() {
		for _, a := range s.Attributes {
			if s.Name == name && a.Key == "usher.fifo.store" {
				by = a.Value.AsString()
			}
		}
	}
	return by
}

// What runs and waits is measured, with either store.
func TestRequestsAreMeasured(t *testing.T) {
	f := measure(t)
	for name, config := range map[string]string{"memory": `{}`, "postgres": onPostgres(t)} {
		t.Run(name, func(t *testing.T) {
			p := policytest.Build(t, define(), config)
			lease, err := p.Admission.Admit(t.Context(), slot("runs"))
			if err != nil {
				t.Fatal(err)
			}
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error)
			go func() {
				_, err := p.Admission.Admit(ctx, slot("waits"))
				left <- err
			}()
			f.becomes(t, 1, "usher.fifo.requests", "usher.fifo.state=running")
			f.becomes(t, 1, "usher.fifo.requests", "usher.fifo.state=waiting")
			before := f.of(t, "usher.fifo.admissions", "usher.fifo.result=left")
			leave()
			if err := <-left; err == nil {
				t.Error("a request that has left was admitted")
			}
			f.becomes(t, before+1, "usher.fifo.admissions", "usher.fifo.result=left")
			if err := lease.Release(t.Context(), policy.Outcome{}); err != nil {
				t.Error(err)
			}
			f.becomes(t, 0, "usher.fifo.requests")
		})
	}
}

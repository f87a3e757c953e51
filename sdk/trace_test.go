package sdk_test

import (
	"context"
	"errors"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
)

// record makes the plugin's spans known to the test. It sets the provider of
// the process, so the test must not be parallel.
func record(t *testing.T) *tracetest.InMemoryExporter {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)))
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	return exporter
}

// hostSpan returns a span of the host.
func hostSpan(id byte, flags trace.TraceFlags) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{id}, TraceFlags: flags})
}

// spanOf returns the one span of a name.
func spanOf(t *testing.T, exporter *tracetest.InMemoryExporter, name string) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range exporter.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %q among %v, want 1", len(found), name, exporter.GetSpans())
	}
	return found[0]
}

// traced is a policy that makes spans of its own.
func traced(d *desk) map[string]sdk.Policies {
	selects := selectFunc(func(ctx context.Context, req *policy.SelectRequest) (policy.Selection, error) {
		_, span := otel.Tracer("policy").Start(ctx, "own select")
		span.End()
		return skipB(ctx, req)
	})
	return map[string]sdk.Policies{"selects": {Selection: selects}, "desk": {Admission: d}}
}

func TestSpansOfThePluginBelongToTheHosts(t *testing.T) {
	exporter := record(t)
	d := newDesk()
	l := connect(t, traced(d))
	asks, admits, releases := hostSpan(1, trace.FlagsSampled), hostSpan(2, trace.FlagsSampled), hostSpan(3, trace.FlagsSampled)
	ctx := trace.ContextWithSpanContext(t.Context(), asks)
	decision := async(func() *host.Decision {
		decision, err := l.Decide(ctx, &host.DecideRequest{
			Request: &policy.Request{ID: "r1"}, Catalog: l.catalog, Candidates: l.catalog.Candidates,
			Select: []string{"selects"}, Admit: "desk", Attempt: 1, AdmitSpan: admits,
		})
		if err != nil {
			t.Error(err)
		}
		return decision
	})
	v := d.next(t)
	_, own := otel.Tracer("policy").Start(v.ctx, "own admit")
	own.End()
	v.admits(0)
	receive(t, decision, "decision")
	answer := l.admit(l.ask("r1"))
	if err := l.Release(ctx, []host.Release{{Instance: "desk", Ticket: host.Ticket{ID: "r1", Attempt: 1}, Span: releases}}); err != nil {
		t.Fatal(err)
	}

	for name, parent := range map[string]trace.SpanContext{
		"selects select": asks, "desk admit": admits, "desk release": releases,
		"own select": spanOf(t, exporter, "selects select").SpanContext,
		"own admit":  spanOf(t, exporter, "desk admit").SpanContext,
	} {
		got := spanOf(t, exporter, name)
		if got.SpanContext.TraceID() != parent.TraceID() || got.Parent.SpanID() != parent.SpanID() {
			t.Errorf("%s is below span %s of trace %s, want %s of %s", name, got.Parent.SpanID(), got.SpanContext.TraceID(), parent.SpanID(), parent.TraceID())
		}
	}
	admitted := spanOf(t, exporter, "desk admit")
	if answer.Span.SpanID() != admitted.SpanContext.SpanID() || answer.Span.TraceID() != admitted.SpanContext.TraceID() {
		t.Errorf("the host was told of span %s, want %s", answer.Span.SpanID(), admitted.SpanContext.SpanID())
	}
}

func TestSpansTellHowAnAdmissionEnded(t *testing.T) {
	exporter := record(t)
	for name, c := range map[string]struct {
		err  error
		code codes.Code
		attr []attribute.KeyValue
	}{
		"rejected": {policy.Reject(policy.ReasonQueueFull, 0), codes.Unset, []attribute.KeyValue{attribute.String("usher.reason", "queue_full")}},
		"failed":   {errors.New("no store"), codes.Error, nil},
		"left":     {context.Canceled, codes.Unset, nil},
	} {
		t.Run(name, func(t *testing.T) {
			exporter.Reset()
			l, d := connectDesk(t)
			ctx := trace.ContextWithSpanContext(t.Context(), hostSpan(1, trace.FlagsSampled))
			call := async(func() error {
				_, err := l.Admit(ctx, l.ask("r1"))
				return err
			})
			d.next(t).fails(c.err)
			if err := receive(t, call, "answer"); err != nil {
				t.Fatal(err)
			}
			span := spanOf(t, exporter, "desk admit")
			attrs := append([]attribute.KeyValue{attribute.String("usher.policy", "desk")}, c.attr...)
			got, want := attribute.NewSet(span.Attributes...), attribute.NewSet(attrs...)
			if span.Status.Code != c.code || !got.Equals(&want) {
				t.Errorf("span has status %v and attributes %v, want %v and %v", span.Status, span.Attributes, c.code, attrs)
			}
		})
	}
}

// Where the host does not record, nothing in the plugin starts a trace.
func TestNothingIsRecordedWhereTheHostDoesNot(t *testing.T) {
	exporter := record(t)
	d := newDesk()
	l := connect(t, traced(d))
	ctx := trace.ContextWithSpanContext(t.Context(), hostSpan(1, 0))
	if _, err := l.Decide(ctx, &host.DecideRequest{
		Request: &policy.Request{ID: "r1"}, Catalog: l.catalog, Candidates: l.catalog.Candidates, Select: []string{"selects"},
	}); err != nil {
		t.Fatal(err)
	}
	if spans := exporter.GetSpans(); len(spans) > 0 {
		t.Errorf("recorded %v, want nothing", spans)
	}
}

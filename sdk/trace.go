package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
)

const scopeName = "github.com/usherproxy/usher/sdk"

// NewTracerProvider returns a provider that exports spans in batches to where
// the OTEL_* environment points, under a service name that OTEL_SERVICE_NAME
// overrides. It returns nil if the environment does not ask for an exporter. A
// collector that cannot be reached costs nothing but the spans.
func NewTracerProvider(ctx context.Context, service, version string) (*sdktrace.TracerProvider, error) {
	if !tracingWanted(os.Getenv) {
		return nil, nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("create trace exporter: %w", err)
	}
	res, err := describeProcess(ctx, service, version)
	if err != nil {
		return nil, err
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res)), nil
}

// describeProcess returns what spans and metrics say of this process.
func describeProcess(ctx context.Context, service, version string) (*resource.Resource, error) {
	res, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName(service), semconv.ServiceVersion(version)),
		resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, fmt.Errorf("describe telemetry resource: %w", err)
	}
	return res, nil
}

// startTracing makes [NewTracerProvider]'s the global one. The returned
// function flushes and ends it.
func startTracing(ctx context.Context, name, version string) (func(context.Context) error, error) {
	provider, err := NewTracerProvider(ctx, "usher-plugin-"+name, version)
	if provider == nil {
		return func(context.Context) error { return nil }, err
	}
	otel.SetTracerProvider(provider)
	return provider.Shutdown, nil
}

// tracingWanted reports whether the environment asks for an exporter.
func tracingWanted(getenv func(string) string) bool {
	if getenv("OTEL_SDK_DISABLED") == "true" || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return getenv("OTEL_TRACES_EXPORTER") != "" || getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" ||
		getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// startSpan starts a span below the host's. Where the host does not record,
// neither does the plugin, whatever its own sampler says; spans of the policy
// itself have the host's as their parent then, so that their sampler knows.
func startSpan(ctx context.Context, tc *policypb.TraceContext, policyName, call string) (context.Context, trace.Span) {
	provider := otel.GetTracerProvider()
	if span := trace.SpanFromContext(ctx); span.IsRecording() { // the host's own: it is this process
		provider = span.TracerProvider()
	}
	if tc.GetTraceparent() != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
			"traceparent": tc.GetTraceparent(), "tracestate": tc.GetTracestate(),
		})
	}
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, noop.Span{}
	}
	return provider.Tracer(scopeName).Start(ctx, policyName+" "+call,
		trace.WithAttributes(attribute.String("usher.policy", policyName)), trace.WithSpanKind(trace.SpanKindServer))
}

// spanContext returns the trace context that the host may link to.
func spanContext(ctx context.Context) *policypb.TraceContext {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return &policypb.TraceContext{Traceparent: carrier["traceparent"], Tracestate: carrier["tracestate"]}
}

// endSpan ends span with err, which may be nil. A rejection and a caller who
// left are answers, not errors.
func endSpan(span trace.Span, err error) {
	if r, ok := errors.AsType[*policy.Rejection](err); ok {
		span.SetAttributes(attribute.String("usher.reason", string(r.Reason)))
	} else if err != nil && !errors.Is(err, context.Canceled) {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

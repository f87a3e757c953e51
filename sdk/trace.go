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

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
)

const scopeName = "github.com/usherproxy/usher/sdk"

// startTracing makes the global tracer provider export to where the OTEL_*
// environment points. It exports nothing if that names no endpoint. The
// returned function flushes and ends it.
func startTracing(ctx context.Context, name, version string) (func(context.Context) error, error) {
	if !tracingWanted(os.Getenv) {
		return func(context.Context) error { return nil }, nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("create trace exporter: %w", err)
	}
	res, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("usher-plugin-"+name), semconv.ServiceVersion(version)),
		resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, fmt.Errorf("describe trace resource: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
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
// neither does the plugin, whatever its own sampler says.
func startSpan(ctx context.Context, tc *policypb.TraceContext, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	if tc.GetTraceparent() == "" {
		return ctx, trace.SpanFromContext(ctx)
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": tc.GetTraceparent(), "tracestate": tc.GetTracestate(),
	})
	return otel.Tracer(scopeName).Start(ctx, name, trace.WithAttributes(attrs...), trace.WithSpanKind(trace.SpanKindServer))
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

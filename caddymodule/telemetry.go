package caddymodule

import (
	"context"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/usherproxy/usher/sdk"
)

// instrumentation names the spans' scope.
const instrumentation = "github.com/usherproxy/usher"

// tracing exports the spans of requests on sites where Caddy's own tracing is
// not on. A nil *tracing exports nothing.
type tracing struct {
	provider *sdktrace.TracerProvider // nil if the environment asks for none
}

// tracingPool holds the one tracing value, so that a reload loses no span.
var tracingPool = caddy.NewUsagePool()

const tracingKey = "tracing"

// acquireTracing returns what exports to where the OTEL_* environment points,
// or nil if it does not ask for an exporter. An exporter that cannot reach its
// collector costs requests nothing: spans are exported in batches, and dropped
// when the queue is full.
func acquireTracing(ctx context.Context, log *zap.Logger, atEnd func(func(context.Context))) (*tracing, error) {
	v, _, err := tracingPool.LoadOrNew(tracingKey, func() (caddy.Destructor, error) {
		provider, err := sdk.NewTracerProvider(context.WithoutCancel(ctx), "usher", Version())
		return &tracing{provider}, err
	})
	if err != nil {
		return nil, err
	}
	atEnd(func(context.Context) {
		if _, err := tracingPool.Delete(tracingKey); err != nil {
			log.Warn("flush traces", zap.Error(err))
		}
	})
	if t := v.(*tracing); t.provider != nil {
		return t, nil
	}
	return nil, nil
}

// flushTimeout is how long the last spans may take.
const flushTimeout = 2 * time.Second

// Destruct flushes what was traced.
func (t *tracing) Destruct() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if t.provider == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// tracer returns what starts spans, or nil if nothing is exported.
func (t *tracing) tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer(instrumentation, trace.WithInstrumentationVersion(Version()))
}

// propagator reads and writes the W3C headers.
var propagator = propagation.TraceContext{}

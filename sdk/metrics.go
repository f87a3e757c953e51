package sdk

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// startMetrics makes a provider the global one that exports what policies measure to
// where the OTEL_* environment points, if it asks for that. The returned function
// flushes and ends it. A collector that cannot be reached costs nothing but the
// figures.
func startMetrics(ctx context.Context, name, version string) (func(context.Context) error, error) {
	if !metricsWanted(os.Getenv) {
		return func(context.Context) error { return nil }, nil
	}
	reader, err := autoexport.NewMetricReader(ctx)
	if err != nil {
		return nil, fmt.Errorf("create metric exporter: %w", err)
	}
	res, err := describeProcess(ctx, "usher-plugin-"+name, version)
	if err != nil {
		return nil, err
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(res))
	otel.SetMeterProvider(provider)
	return provider.Shutdown, nil
}

// metricsWanted reports whether the environment asks for an exporter that a plugin can
// have: it owns neither a port to be asked on nor its standard output.
func metricsWanted(getenv func(string) string) bool {
	if getenv("OTEL_SDK_DISABLED") == "true" {
		return false
	}
	switch getenv("OTEL_METRICS_EXPORTER") {
	case "otlp":
		return true
	case "":
		return getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") != ""
	}
	return false
}

package sdk_test

import (
	"testing"

	"github.com/usherproxy/usher/sdk"
)

// A plugin exports metrics where its environment asks for it, and only in a way that
// needs neither a port nor its standard output.
func TestMetricsAreExportedWhereTheEnvironmentAsks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  map[string]string
		want bool
	}{
		"nothing said":        {nil, false},
		"an endpoint":         {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, true},
		"one for metrics":     {map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4317"}, true},
		"one for traces":      {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"}, false},
		"the usual endpoint":  {map[string]string{"OTEL_METRICS_EXPORTER": "otlp"}, true},
		"none":                {map[string]string{"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, false},
		"a port":              {map[string]string{"OTEL_METRICS_EXPORTER": "prometheus"}, false},
		"the standard output": {map[string]string{"OTEL_METRICS_EXPORTER": "console"}, false},
		"nothing at all":      {map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_METRICS_EXPORTER": "otlp"}, false},
	} {
		if got := sdk.MetricsWanted(func(key string) string { return c.env[key] }); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

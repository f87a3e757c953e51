// Package sdk turns policies into a plugin of Usher.
//
// A plugin is a program whose main function calls [Serve]. Usher starts it as a
// process of its own, sends it its configuration, and asks the policies that it
// offers until Usher stops it.
//
//	type config struct {
//		Max int `json:"max"`
//	}
//
//	func main() {
//		sdk.Serve("slots", config{Max: 8}, func(_ context.Context, c config) (sdk.Policies, error) {
//			return sdk.Policies{Admission: make(slots, c.Max)}, nil
//		})
//	}
//
// # Life
//
// One process may hold several instances of a policy, one for each distinct
// configuration; during a reload the old and the new one live side by side. A
// panic in a policy is an error of that one call. The process ends when its
// host does, however the host ends.
//
// # Logs, traces and metrics
//
// What a policy logs with log/slog arrives in Usher's log, under the plugin's
// name. The contexts that policies are called with carry the span of the
// request, and the providers that [otel.GetTracerProvider] and
// [otel.GetMeterProvider] return export to where the OTEL_* environment of the
// plugin points. A policy that runs inline has no meter. Nothing must be written to
// standard output by hand; what is written there is logged.
//
// Package policytest checks that a policy keeps its contract.
package sdk

import _ "go.opentelemetry.io/otel" // for the link in the comment above

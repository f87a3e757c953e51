// Command usher is Caddy with the usher module and its default policies.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/hashicorp/go-plugin"
	_ "go.opentelemetry.io/contrib/exporters/autoexport"
	_ "go.opentelemetry.io/otel/sdk/trace"
	_ "go.uber.org/goleak"
)

func main() { caddycmd.Main() }

// Command usher is Caddy with the module usher, its default policies, and a
// simulated provider to try it with.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/usherproxy/usher"
	_ "github.com/usherproxy/usher/examples/simulator"
)

func main() { caddycmd.Main() }

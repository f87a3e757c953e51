// Command usher is Caddy with the module usher, its default policies, and a
// simulated provider to try it with.
package main

import (
	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/usherproxy/usher"
	"github.com/usherproxy/usher/caddymodule"
	_ "github.com/usherproxy/usher/examples/simulator"
)

const about = `Usher schedules AI requests: it asks policies which provider key may serve a
request and when it may start, proxies it, and tells why.

It is the Caddy server with the directive 'usher', so all of Caddy's commands
and configuration work. The ones to begin with:

	$ usher run      --config Caddyfile    # in the foreground
	$ usher validate --config Caddyfile    # finds every mistake, with its line
	$ usher reload   --config Caddyfile    # without losing a request
	$ usher explain  [<request-id>]        # why it waited, why it went there
	$ usher policy   keys status           # what a policy knows`

func init() {
	caddy.CustomBinaryName = "usher"
	caddy.CustomLongDescription = about
	caddy.CustomVersion = "usher " + caddymodule.Version() + " on caddy"
}

func main() { caddycmd.Main() }

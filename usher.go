// Package usher links Usher into a Caddy: the module and its default policies.
// It is what xcaddy builds with:
//
//	xcaddy build --with github.com/usherproxy/usher
//
// The default policies run as a process that the same executable starts again,
// with a subcommand of its own, or in its own process if they are to be inline.
package usher

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/plugins/keys"
)

func init() {
	caddymodule.RegisterBuiltIn(keys.New().Definition(), fifo.New().Definition())
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  caddymodule.BuiltInCommand,
		Short: "Serves the default policies to Usher; not for use by hand",
		CobraFunc: func(cmd *cobra.Command) {
			cmd.Hidden = true
			cmd.Args = cobra.NoArgs
			cmd.RunE = func(*cobra.Command, []string) error {
				caddymodule.ServeBuiltIn()
				return nil
			}
		},
	})
}

package caddymodule

import (
	"os"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/usherproxy/usher/internal/pluginhost"
)

// attachCommand is the subcommand with which the executable starts itself in
// the place of a plugin that was started by hand.
const attachCommand = "plugin-attach"

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  attachCommand,
		Short: "Stands in for a plugin that was started by hand; not for use by hand",
		CobraFunc: func(cmd *cobra.Command) {
			cmd.Hidden = true
			cmd.Args = cobra.ExactArgs(1)
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				return pluginhost.Attach(cmd.OutOrStdout(), os.Stdin, args[0])
			}
		},
	})
}

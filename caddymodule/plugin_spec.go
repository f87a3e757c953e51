package caddymodule

import (
	"fmt"
	"os"
	"strings"
	"time"

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

// spec returns how the plugin is run in an environment.
func (p *Plugin) spec(env []string) pluginhost.Spec {
	spec := pluginhost.Spec{
		Name: p.Name, Path: p.Path, Args: p.Args, Env: env,
		Dir: p.Workdir, User: p.User, Group: p.Group, AutoMTLS: p.AutoMTLS,
		Checksum:     strings.ToLower(strings.TrimPrefix(p.Checksum, "sha256:")),
		StartTimeout: time.Duration(p.StartTimeout), HostVersion: Version(),
	}
	if p.Attach != "" {
		spec.Path, spec.Args, spec.Env, spec.Patient = ownPath(), []string{attachCommand, p.Attach}, nil, true
	}
	return spec
}

// ownPath returns the path of this executable.
func ownPath() string {
	path, err := os.Executable()
	if err != nil {
		return fmt.Sprintf("(unknown: %v)", err)
	}
	return path
}

package caddymodule

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/internal/plugintool"
	"github.com/usherproxy/usher/sdk/conformance"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "plugin",
		Usage: "new|info|test",
		Short: "Makes a plugin, shows what one offers, tests one",
		Long: `
For authors of policies. A plugin is an executable that serves policies; see
docs/writing-a-policy.md, and docs/plugin-protocol.md for languages other than
Go.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(pluginNew(), pluginInfo(), pluginTest())
		},
	})
}

func pluginNew() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new <name> --kind admission|selection [--dir <directory>] [--module <path>]",
		Short: "Writes a Go module with a policy that builds and passes its tests",
		Long: `
Writes a Go module that is a plugin: a policy with its configuration, its test,
a README, and a Caddyfile that runs it with a simulated provider. It overwrites
nothing.

	$ usher plugin new fair --kind admission
	$ cd fair && go mod tidy && go test ./... && go build -o fair .
	$ usher plugin test ./fair`,
		Args: cobra.ExactArgs(1),
	}
	kind := cmd.Flags().String("kind", "", "What the policy decides: admission (when) or selection (where)")
	dir := cmd.Flags().String("dir", "", "The directory to write to (default: one with the name, here)")
	module := cmd.Flags().String("module", "", "The path of the Go module (default: example.com/<name>)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		to := *dir
		if to == "" {
			to = args[0]
		}
		m := plugintool.Module{Name: args[0], Kind: *kind, Path: *module, Version: Version()}
		if err := m.Write(to); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "wrote %s; README.md there says what to do with it\n", filepath.Clean(to))
		return err
	}
	return cmd
}

func pluginInfo() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info <executable> [<args...>]",
		Short: "Shows the name, policies, options and defaults of a plugin",
		Long: `
Starts the plugin and shows what it says of itself: its name and version, what
it can do beyond the mandatory calls, and for each of its policies the kinds of
decision that it takes part in and its options with their defaults. Each policy
is configured once, with its defaults or with --config.

	$ usher plugin info ./fair`,
		Args: cobra.MinimumNArgs(1),
	}
	config := cmd.Flags().String("config", "", "A configuration to tell the kinds with, a JSON object (default: the defaults)")
	executable := executableFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return executable(args).Info(cmd.Context(), cmd.OutOrStdout(), *config)
	}
	return cmd
}

func pluginTest() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test <executable> [<args...>]",
		Short: "Checks that a plugin in any language keeps the contract, and times it",
		Long: `
Starts the plugin and runs the conformance checks against it: its configuration,
the protocol, and all that each of its policies offers; then how its process
begins and ends. It prints a line for each check, with what went wrong below
those that failed, and the percentiles of how long calls take. A check that
needs something that the policy does not have, such as a limit, is skipped and
says so.

It exits with 0 if no check failed, and with 1 otherwise.

	$ usher plugin test ./fair
	$ usher plugin test ./fair --config '{"max": 1}'
	$ usher plugin test usher policy-plugin --policy fifo --scopes`,
		Args:          cobra.MinimumNArgs(1),
		SilenceErrors: false,
	}
	var test plugintool.Test
	cmd.Flags().StringArrayVar(&test.Policies, "policy", nil, "A policy to test; may be repeated (default: all)")
	cmd.Flags().StringVar(&test.Config, "config", "", "The configuration to test with, a JSON object (default: the defaults)")
	cmd.Flags().BoolVar(&test.Scopes, "scopes", false, "The policy enforces the limits of the scopes that requests carry: check that, too")
	cmd.Flags().IntVar(&test.Calls, "calls", 500, "How many calls are timed; none if 0")
	cmd.Flags().DurationVar(&test.Patience, "patience", conformance.Patience, "How long a check waits for an answer before it fails")
	executable := executableFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return executable(args).Test(cmd.Context(), cmd.OutOrStdout(), test)
	}
	return cmd
}

// executableFlags adds the flags that say how an executable is run.
func executableFlags(cmd *cobra.Command) func(args []string) *plugintool.Executable {
	env := cmd.Flags().StringArray("env", nil, "NAME=value in the environment of the plugin, which is empty otherwise; may be repeated")
	timeout := cmd.Flags().Duration("start-timeout", time.Duration(defaultStartTimeout), "How long it may take until it serves")
	verbose := cmd.Flags().BoolP("verbose", "v", false, "Show all of the plugin's log, not only its errors")
	cmd.Flags().SetInterspersed(true)
	cmd.SilenceUsage = true
	return func(args []string) *plugintool.Executable {
		level := zapcore.ErrorLevel
		if *verbose {
			level = zapcore.DebugLevel
		}
		encoder := zap.NewDevelopmentEncoderConfig()
		log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(encoder), zapcore.Lock(os.Stderr), level))
		path := args[0]
		if filepath.Base(path) == path {
			path = "." + string(filepath.Separator) + path // PATH is not searched
		}
		return &plugintool.Executable{
			Spec: pluginhost.Spec{
				Name: filepath.Base(path), Path: path, Args: args[1:], Env: *env,
				StartTimeout: *timeout, HostVersion: Version(),
			},
			Log: log.Named("plugin"),
		}
	}
}

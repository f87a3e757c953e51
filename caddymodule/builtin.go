package caddymodule

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap/exp/zapslog"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/sdk"
)

// builtIn are the policies that the executable itself serves: as a process, or
// inline in its own.
var builtIn = []string{policyKeys, policyFIFO}

const (
	// builtInName is the name of their plugin, and inlineName that of those
	// that are inline.
	builtInName = "builtin"
	inlineName  = "inline"
)

// BuiltInCommand is the subcommand with which the executable starts itself to
// serve the built-in policies.
const BuiltInCommand = "policy-plugin"

// builtInDefinitions are what RegisterBuiltIn was told.
var builtInDefinitions []sdk.Definition

// RegisterBuiltIn tells what the built-in policies are, which this package
// knows by name only. It is called once, by an init function.
func RegisterBuiltIn(definitions ...sdk.Definition) { builtInDefinitions = definitions }

// ServeBuiltIn is what BuiltInCommand runs: it serves the built-in policies to
// the process that has started this one.
func ServeBuiltIn() { sdk.ServeAll(builtInName, builtInDefinitions...) }

// acquireBuiltIn returns the plugin that serves a built-in policy.
func (a *App) acquireBuiltIn(ctx context.Context, policyName string) (p *pluginhost.Plugin, err error) {
	inline := slices.Contains(a.Inline, policyName)
	if inline {
		p, err = a.acquireInline(ctx)
	} else {
		p, err = a.acquireOwn(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range builtIn {
		if slices.Contains(a.Inline, name) == inline {
			a.plugins[name] = p
		}
	}
	return p, nil
}

// acquireInline returns the plugin of the policies in this process.
func (a *App) acquireInline(ctx context.Context) (*pluginhost.Plugin, error) {
	spec := pluginhost.Spec{Name: inlineName, HostVersion: Version()}
	return a.acquire(spec, func() (*pluginhost.Plugin, error) {
		log := pluginLog(inlineName)
		slog.SetDefault(slog.New(zapslog.NewHandler(log.Core(), zapslog.WithName("usher.plugin."+inlineName))))
		return pluginhost.StartInline(ctx, spec, log, builtInDefinitions...)
	})
}

// acquireOwn returns the plugin of the policies that the executable serves in
// a process of their own.
func (a *App) acquireOwn(ctx context.Context) (*pluginhost.Plugin, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own executable: %w", err)
	}
	return a.acquireProcess(ctx, pluginhost.Spec{
		Name: builtInName, Path: path, Args: []string{BuiltInCommand}, Env: builtInEnv(os.Environ(), !a.DisableTelemetry),
		StartTimeout: time.Duration(defaultStartTimeout), HostVersion: Version(),
	})
}

// builtInEnv returns the part of the environment that the built-in policies
// get: where Caddy keeps its files, and where telemetry goes if it is exported.
func builtInEnv(environ []string, export bool) []string {
	var env []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if name == "HOME" || export && strings.HasPrefix(name, "OTEL_") && name != "OTEL_SERVICE_NAME" {
			env = append(env, e)
		}
	}
	slices.Sort(env)
	return env
}

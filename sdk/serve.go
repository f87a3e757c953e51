package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// Serve runs a plugin with one policy until its host stops it. It is the last
// call of main, and it ends the process if that was not started by a host.
// See [Define] for its arguments.
func Serve[C any](name string, defaults C, build func(ctx context.Context, config C) (Policies, error)) {
	ServeAll(name, Define(name, defaults, build))
}

// ServeAll is like [Serve] for a plugin of several policies. A host asks
// policies of one process that follow each other in one round trip.
func ServeAll(name string, definitions ...Definition) {
	// The host decides when a plugin ends: it drains before it stops us. A
	// terminal or a service manager signals the whole group at once.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	// When the host is gone, a line of the log must not end us before the
	// policies have closed.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	stderr := os.Stderr
	slog.SetDefault(newLogger(stderr))
	log := slog.Default()

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	version := buildVersion()
	flush := startTelemetry(ctx, name, version)
	s := newServer(ctx, name, version, definitions)
	if socket := os.Getenv(attachEnv); socket != "" {
		if err := serveByHand(s, socket); err != nil {
			log.Error("serve by hand", "error", err)
		}
		s.end(stop, flush)
		return
	}
	end := sync.OnceFunc(func() { s.end(stop, flush) })
	watchLifeline(func() {
		time.AfterFunc(exitTimeout, func() { os.Exit(1) }) // whatever a policy does
		end()
		os.Exit(1)
	})
	half := &ServerPlugin{server: s}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  wire.Handshake,
		VersionedPlugins: map[int]plugin.PluginSet{wire.ProtocolVersion: {wire.PluginName: half}},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			if len(opts) > 0 { // TLS, which frames do not have
				return grpc.NewServer(append(opts, wire.ServerOptions()...)...)
			}
			return grpc.NewServer(half.ServerOptions()...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Name: name, Level: hclog.Warn, JSONFormat: true, Output: stderr}),
	})

	end()
}

// startTelemetry exports traces and metrics if the environment asks for it. Where that fails,
// everything else works. The returned function flushes and ends it.
func startTelemetry(ctx context.Context, name, version string) (flush func(context.Context) error) {
	var all []func(context.Context) error
	for what, start := range map[string]func(ctx context.Context, name, version string) (func(context.Context) error, error){
		"traces": startTracing, "metrics": startMetrics,
	} {
		flush, err := start(ctx, name, version)
		if err != nil {
			slog.Error(what+" are not exported", "error", err)
			continue
		}
		all = append(all, flush)
	}
	return func(ctx context.Context) error {
		errs := make([]error, len(all))
		var done sync.WaitGroup
		for i, flush := range all {
			done.Go(func() { errs[i] = flush(ctx) })
		}
		done.Wait()
		return errors.Join(errs...)
	}
}

// end closes all instances and flushes what they traced and measured.
func (s *server) end(stop func(), flush func(context.Context) error) {
	stop()
	ctx, cancel := context.WithTimeout(context.Background(), exitTimeout)
	defer cancel()
	if _, err := s.Drain(ctx, &policypb.DrainRequest{}); err != nil {
		slog.Error("drain", "error", err)
	}
	if err := flush(ctx); err != nil {
		slog.Warn("flush telemetry", "error", err)
	}
}

// exitTimeout is how long the policies have to close. The host kills a plugin
// that has not ended two seconds after it was told to.
const exitTimeout = 1500 * time.Millisecond

// watchLifeline calls gone when the standard input ends, if the host has said
// that this is what its own end looks like.
func watchLifeline(gone func()) {
	if os.Getenv(wire.LifelineEnv) == "" {
		return
	}
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		slog.Warn("the host is gone", "error", err)
		gone()
	}()
}

func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

// A ServerPlugin connects the plugin's half to hashicorp/go-plugin. Package
// policytest uses it to serve policies inside of a test; plugins call [Serve].
type ServerPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	server *server
}

// NewServerPlugin returns the plugin's half of a connection that serves
// definitions. Instances end at the latest with ctx.
func NewServerPlugin(ctx context.Context, name string, definitions ...Definition) *ServerPlugin {
	return &ServerPlugin{server: newServer(ctx, name, buildVersion(), definitions)}
}

// Service returns the service itself, for a host in the same process. What a
// policy revokes is told to revoked, which must not block.
func (p *ServerPlugin) Service(revoked func(*policypb.Revoked)) policypb.PolicyServiceServer {
	p.server.revoked = revoked
	return p.server
}

// GRPCServer registers the service.
func (p *ServerPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	policypb.RegisterPolicyServiceServer(s, p.server)
	return nil
}

// GRPCClient fails: a ServerPlugin has no host's half.
func (p *ServerPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("plugin %s: not a host", p.server.name)
}

var _ plugin.GRPCPlugin = (*ServerPlugin)(nil)

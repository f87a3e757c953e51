package sdk

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// attachEnv names the environment variable with which a plugin is started by
// hand: it holds the path of the socket to listen on.
const attachEnv = "USHER_ATTACH"

// serveByHand serves hosts that come and go, until it is interrupted.
func serveByHand(s *server, socket string) error {
	socket, err := filepath.Abs(socket)
	if err != nil {
		return err
	}
	if conn, err := net.Dial("unix", socket); err == nil {
		_ = conn.Close() // it was only to see
		return fmt.Errorf("another plugin listens on %s", socket)
	}
	_ = os.Remove(socket) // is left of one that was killed
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := grpc.NewServer(append(wire.ServerOptions(), grpc.StatsHandler(hosts{s}))...)
	policypb.RegisterPolicyServiceServer(server, s)
	context.AfterFunc(ctx, server.Stop)
	fmt.Fprintf(os.Stderr, "Waiting for Usher. Put into its Caddyfile, or after a change of this plugin reload:\n\n\tplugin %s %s {\n\t\tattach %s\n\t}\n\n",
		s.name, os.Args[0], socket)
	return server.Serve(listener)
}

// hosts forgets all that a host has set up when its connection ends.
type hosts struct{ server *server }

// calledKey is the key of the context value, an [*atomic.Bool], that tells that
// a connection has made a call: who only looked is no host.
type calledKey struct{}

// TagConn begins to watch a connection.
func (hosts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, calledKey{}, new(atomic.Bool))
}

// HandleConn ends the instances of a host that is gone.
func (h hosts) HandleConn(ctx context.Context, event stats.ConnStats) {
	called, _ := ctx.Value(calledKey{}).(*atomic.Bool)
	if _, ended := event.(*stats.ConnEnd); !ended || called == nil || !called.Load() {
		return
	}
	if _, err := h.server.Drain(context.WithoutCancel(ctx), &policypb.DrainRequest{}); err != nil {
		slog.Error("drain", "error", err)
	}
}

// TagRPC notes that the connection is that of a host.
func (hosts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	if called, ok := ctx.Value(calledKey{}).(*atomic.Bool); ok {
		called.Store(true)
	}
	return ctx
}

// HandleRPC does nothing.
func (hosts) HandleRPC(context.Context, stats.RPCStats) {}

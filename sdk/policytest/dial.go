package policytest

import (
	"context"
	"encoding/json"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/conformance"
	"github.com/usherproxy/usher/sdk/host"
)

// patience is how long what was served may take to end.
const patience = 30 * time.Second

// Build builds an instance of a policy in the process of the test, with a
// configuration, which is a JSON object or empty. The instance is closed when
// the test ends, unless the test has done so.
func Build(t testing.TB, definition sdk.Definition, config string) sdk.Policies {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p, err := definition.Build(ctx, json.RawMessage(config))
	if err != nil {
		cancel()
		t.Fatalf("build policy %s: %v", definition.Name(), err)
	}
	conformance.CloseWith(t, &p)
	t.Cleanup(cancel) // runs before the instance is closed, as at the end of a process
	return p
}

// Dial is like [Build], but the returned policies call the instance over a
// connection, as Usher does.
func Dial(t testing.TB, definition sdk.Definition, config string) sdk.Policies {
	t.Helper()
	return conformance.Configure(t, Connect(t, definition), "instance", definition.Name(), config)
}

// Connect serves definitions in the process of the test, and returns the
// host's half of a connection to them. It is for tests of what only a host can
// see, such as calls that are made twice. The connection has a session that is
// carried by frames, as between Usher and a plugin in Go, and ends with the test.
func Connect(t testing.TB, definitions ...sdk.Definition) *host.Client {
	t.Helper()
	client, listener := connect(t, definitions)
	conn, err := listener.Dial()
	if err == nil {
		err = client.OpenFrames(conn)
	}
	if err != nil {
		t.Fatalf("open session: %v", err)
	}
	return client
}

// ConnectStream is like [Connect] with a session that is a stream of gRPC.
func ConnectStream(t testing.TB, definitions ...sdk.Definition) *host.Client {
	t.Helper()
	client, _ := connect(t, definitions)
	if err := client.OpenSession(); err != nil {
		t.Fatalf("open session: %v", err)
	}
	return client
}

// ConnectUnary is like [Connect] without a session.
func ConnectUnary(t testing.TB, definitions ...sdk.Definition) *host.Client {
	t.Helper()
	client, _ := connect(t, definitions)
	return client
}

// connect returns a client without a session, and what its server listens to.
func connect(t testing.TB, definitions []sdk.Definition) (*host.Client, *bufconn.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	listener := serve(t, sdk.NewServerPlugin(ctx, "policytest", definitions...))
	conn := dial(t, listener)
	half, err := (&host.Plugin{}).GRPCClient(ctx, nil, conn)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	client := half.(*host.Client)
	t.Cleanup(func() {
		cancel()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := client.Drain(ctx, ""); err != nil {
			t.Errorf("drain: %v", err)
		}
	})
	return client, listener
}

// serve runs a gRPC server in memory until the test ends.
func serve(t testing.TB, p *sdk.ServerPlugin) *bufconn.Listener {
	t.Helper()
	server := grpc.NewServer(p.ServerOptions()...)
	if err := p.GRPCServer(nil, server); err != nil {
		t.Fatalf("serve: %v", err)
	}
	listener := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return listener
}

// dial connects to a listener in memory until the test ends.
func dial(t testing.TB, listener *bufconn.Listener) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///policytest", append(host.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("close connection: %v", err)
		}
	})
	return conn
}

package sdk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/usherproxy/usher/sdk/internal/wire"
)

// ServerOptions are those of a gRPC server of p without TLS, which takes sessions
// as frames, too: it lets the plugin say so. They are used for one server.
func (p *ServerPlugin) ServerOptions() []grpc.ServerOption {
	p.server.capabilities = append(p.server.capabilities, wire.CapabilityFrames)
	return append(wire.ServerOptions(), grpc.Creds(doorman{insecure.NewCredentials(), p.server}))
}

// A doorman stands where a server of gRPC shakes hands with those who connect to
// it, and leads those away who come for frames.
type doorman struct {
	credentials.TransportCredentials
	server *server
}

// ServerHandshake reads how a connection begins.
func (d doorman) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	first := make([]byte, len(wire.FramesPreface))
	if _, err := io.ReadFull(conn, first); err != nil {
		return nil, nil, err
	}
	if string(first) != wire.FramesPreface {
		return d.TransportCredentials.ServerHandshake(&peeked{conn, io.MultiReader(bytes.NewReader(first), conn)})
	}
	go d.server.serveFrames(conn) // ends with the connection, or with the server
	return nil, nil, credentials.ErrConnDispatched
}

// Clone returns d, which never changes.
func (d doorman) Clone() credentials.TransportCredentials { return d }

// peeked is a connection whose beginning has been read.
type peeked struct {
	net.Conn
	all io.Reader
}

// Read reads from the beginning on.
func (p *peeked) Read(b []byte) (int, error) { return p.all.Read(b) }

// serveFrames serves a session until its connection ends, and closes that.
func (s *server) serveFrames(conn net.Conn) {
	end := context.AfterFunc(s.ctx, func() { _ = conn.Close() }) // ends the session
	defer end()
	err := s.serveSession(s.ctx, wire.NewFrames(conn), func() { _ = conn.Close() }) // of which nothing is left to be lost
	if s.ctx.Err() == nil && !errors.Is(err, io.EOF) {
		slog.Warn("session ended", "error", err)
	}
}

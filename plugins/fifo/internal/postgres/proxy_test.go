package postgres_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/usherproxy/usher/internal/pgtest"
)

// A proxy stands between stores and the database, and cuts connections.
type proxy struct {
	to       string
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
	silent bool
	cuts   int
}

func startProxy(t *testing.T) *proxy {
	t.Helper()
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: fmt.Sprintf("%s:%d", config.Host, config.Port), conns: map[net.Conn]bool{}}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) dsn() string {
	_, port, _ := strings.Cut(p.listener.Addr().String(), ":")
	return fmt.Sprintf("host=127.0.0.1 port=%s user=postgres dbname=postgres sslmode=disable", port)
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil || !p.keep(client, server) {
			_ = client.Close()
			continue
		}
		p.wg.Go(func() { p.copy(client, server) })
		p.wg.Go(func() { p.copy(server, client) })
	}
}

func (p *proxy) keep(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = server.Close()
		return false
	}
	p.conns[client], p.conns[server] = true, true
	return true
}

func (p *proxy) copy(to, from net.Conn) {
	_, _ = io.Copy(writer{p, to}, from)
	_, _ = to.Close(), from.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, to)
	delete(p.conns, from)
}

// A writer swallows what is written while the proxy is silent.
type writer struct {
	*proxy
	to net.Conn
}

func (w writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	silent := w.silent
	w.mu.Unlock()
	if silent {
		return len(b), nil
	}
	return w.to.Write(b)
}

// silence makes the proxy swallow everything, or ends that.
func (p *proxy) silence(silent bool) {
	p.mu.Lock()
	p.silent = silent
	p.mu.Unlock()
	if !silent {
		p.cut()
	}
}

// cut cuts all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts++
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// close cuts all connections and accepts no more, until open.
func (p *proxy) close() {
	p.set(true)
	p.cut()
}

func (p *proxy) open() { p.set(false) }

func (p *proxy) set(closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = closed
}

package caddymodule

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

// The limits of a session, as records and spans name them.
const (
	partSessionIdle = "session_idle"
	partSessionAge  = "session_age"
)

// A session is the connection to a provider after it has switched to
// WebSocket. The attempt ends with it, and the lease.
type session struct {
	a    *attempt
	conn io.ReadWriteCloser
	idle *time.Timer

	mu      sync.Mutex
	meter   *format.SessionMeter
	overdue bool  // nothing was sent for too long
	err     error // of the provider's side, if that ended first
	closed  bool
	parted  bool // the caller was told why, or cannot be
}

func newSession(a *attempt, conn io.ReadWriteCloser) *session {
	s := &session{a: a, conn: conn, meter: format.NewSessionMeter(a.r.op)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = time.AfterFunc(time.Duration(a.r.h.Session.Idle), func() {
		s.mu.Lock()
		s.overdue = true
		s.mu.Unlock()
		_ = conn.Close() // which ends both directions
	})
	return s
}

// Read reads what the provider sends and, if it is not the provider that ends the
// session in order, a last frame that says why it ends.
func (s *session) Read(p []byte) (int, error) {
	n, err := s.conn.Read(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.meter.Write(p[:n]) // never fails
	s.movedLocked(n)
	if err == nil {
		return n, nil
	}
	if !s.closed && s.err == nil {
		s.err = err
	}
	if n += copy(p[n:], s.partLocked()); n > 0 {
		return n, nil // the error comes again
	}
	return 0, ended(err)
}

// The codes with which sessions are closed here (RFC 6455, section 7.4.1, and
// IANA's registry).
const (
	closeGoingAway  = 1001
	closeBadGateway = 1014
)

// partLocked returns the frame that closes the session for the caller, once, or nothing
// if the provider did that or has left within a frame, or if the caller has left.
func (s *session) partLocked() []byte {
	_, told := s.meter.Closed()
	if s.parted || told || !s.meter.Between() {
		return nil
	}
	s.parted = true
	limits := &s.a.r.h.Session
	switch refusal := revoked(s.a.r.ctx); {
	case refusal != nil:
		return format.CloseFrame(closeGoingAway, refusal.Message)
	case s.overdue:
		return format.CloseFrame(closeGoingAway, fmt.Sprintf("nothing was sent for %v", time.Duration(limits.Idle)))
	case errors.Is(s.a.r.ctx.Err(), context.DeadlineExceeded):
		return format.CloseFrame(closeGoingAway, fmt.Sprintf("a session may last %v", time.Duration(limits.Age)))
	case s.err != nil:
		return format.CloseFrame(closeBadGateway, "the provider has ended the connection")
	}
	return nil
}

// errEnded is the end of one direction of a session. The proxy would let the
// other one go on after io.EOF, which a WebSocket has no use for.
var errEnded = errors.New("the session has ended")

func ended(err error) error {
	if err == io.EOF {
		return errEnded
	}
	return err
}

// Write sends to the provider.
func (s *session) Write(p []byte) (int, error) {
	n, err := s.conn.Write(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.movedLocked(n)
	return n, err
}

// movedLocked notes that something was sent.
func (s *session) movedLocked(n int) {
	if n > 0 && !s.closed && !s.overdue {
		s.idle.Reset(time.Duration(s.a.r.h.Session.Idle))
	}
}

// Close ends the session and the attempt. Only the first call counts.
func (s *session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.idle.Stop()
	err := s.conn.Close()
	s.a.finish(s.dispositionLocked())
	return err
}

// usage is what the provider has told. The session must be closed.
func (s *session) usage() *policy.Usage { return s.meter.Usage() }

func (s *session) dispositionLocked() policy.Disposition {
	code, told := s.meter.Closed()
	switch {
	case revoked(s.a.r.ctx) != nil:
		return policy.Denied
	case s.overdue:
		s.a.timeout = partSessionIdle
		return policy.OK
	case errors.Is(s.a.r.ctx.Err(), context.DeadlineExceeded):
		s.a.timeout = partSessionAge
		return policy.OK
	case told:
		return closedWith(code)
	case s.err != nil: // the provider left without a word
		s.a.err = s.err
		return policy.UpstreamError
	}
	return policy.ClientGone
}

// closedWith says what the code means with which a provider closed a session
// (RFC 6455, section 7.4.1, and IANA's registry).
func closedWith(code int) policy.Disposition {
	switch code {
	case 1002, 1003, 1007, 1008, 1009, 1010: // what the caller sent
		return policy.ClientFault
	case 1011, 1014:
		return policy.UpstreamError
	case 1012, 1013:
		return policy.Overloaded
	}
	return policy.OK
}

// judgeSession says what the answer to a request for a session means.
func (a *attempt) judgeSession(resp *http.Response) policy.Disposition {
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return policy.UpstreamError
	}
	a.first = time.Since(a.began)
	a.watch.content()
	return policy.OK
}

// deliverSession returns the answer with which a session begins.
func (a *attempt) deliverSession(out *http.Request, resp *http.Response) *http.Response {
	resp = answering(out, resp)
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok {
		a.r.session = newSession(a, conn)
		resp.Body = a.r.session
	}
	return resp
}

// A sessionWriter is the writer of an answer that may begin a session.
type sessionWriter struct {
	http.ResponseWriter
	conn *callerConn // once the session has begun
}

// Unwrap returns the writer that is wrapped.
func (w *sessionWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack takes the connection to the caller over.
func (w *sessionWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, brw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.conn = &callerConn{Conn: conn}
	return w.conn, brw, nil
}

// A callerConn is the connection to a caller of a session. Nobody uses it any
// more when its end has returned: the server then reads what it has counted.
type callerConn struct {
	net.Conn
	mu    sync.RWMutex
	ended bool
}

// Read reads what the caller sends.
func (c *callerConn) Read(p []byte) (int, error) {
	n, err := c.use(c.Conn.Read, p)
	return n, ended(err)
}

// Write sends to the caller.
func (c *callerConn) Write(p []byte) (int, error) { return c.use(c.Conn.Write, p) }

func (c *callerConn) use(f func([]byte) (int, error), p []byte) (int, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.ended {
		return 0, net.ErrClosed
	}
	return f(p)
}

func (c *callerConn) end() {
	_ = c.Close() // which ends what waits
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

// endSession ends the session of the request, if it has one: the proxy itself
// does not wait for that.
func (r *run) endSession(w *sessionWriter) {
	if r.session != nil {
		_ = r.session.Close()
	}
	if w.conn != nil {
		w.conn.end()
	}
}

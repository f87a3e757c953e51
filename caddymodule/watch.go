package caddymodule

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/usherproxy/usher/internal/format"
)

// The parts of an attempt that may take too long, as errors, records and spans
// name them.
const (
	partConnect    = "connect"
	partFirstEvent = "first_event"
	partIdle       = "idle"
)

// An overdueError is the error of an attempt of which one part took too long.
type overdueError struct {
	part string
	most time.Duration
}

// Error names the part.
func (e *overdueError) Error() string {
	switch e.part {
	case partFirstEvent:
		return fmt.Sprintf("no content within %s (timeout %s)", e.most, e.part)
	case partIdle:
		return fmt.Sprintf("nothing came for %s (timeout %s)", e.most, e.part)
	}
	return fmt.Sprintf("no connection within %s (timeout %s)", e.most, e.part)
}

// Timeout reports true, as [net.Error] wants it.
func (*overdueError) Timeout() bool { return true }

// Temporary is not used.
func (*overdueError) Temporary() bool { return false }

var _ net.Error = (*overdueError)(nil)

// A watch ends an attempt of which one part takes too long. Its zero value
// watches nothing.
type watch struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
	idle   time.Duration
	begun  bool // there was content
}

// watch returns ctx as one that ends when a part of the attempt takes too long.
func (a *attempt) watched(ctx context.Context) context.Context {
	t := a.r.h.providers[a.candidate.Provider].Timeouts
	ctx, a.watch.cancel = context.WithCancelCause(ctx)
	a.watch.idle = time.Duration(t.Idle)
	if a.r.facts.Stream || a.r.op.Kind == format.Session {
		a.watch.arm(partFirstEvent, time.Duration(t.FirstEvent))
	}
	return ctx
}

// arm ends the attempt after some time.
func (w *watch) arm(part string, most time.Duration) {
	w.timer = time.AfterFunc(most, func() { w.cancel(&overdueError{part, most}) })
}

// content notes that there was content: from now on the time between two
// pieces counts.
func (w *watch) content() {
	if w.begun {
		return
	}
	w.begun = true
	w.end()
	w.timer = nil
}

// reading notes that the next piece is waited for.
func (w *watch) reading() {
	switch {
	case w.cancel == nil || !w.begun:
	case w.timer == nil:
		w.arm(partIdle, w.idle)
	default:
		w.timer.Reset(w.idle)
	}
}

// read notes that a piece has come.
func (w *watch) read() {
	if w.begun {
		w.end()
	}
}

// end ends the watch, but not the attempt.
func (w *watch) end() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// overdue returns the part of the attempt that took too long, or nil.
func (a *attempt) overdue() *overdueError {
	if a.r.ctx.Err() != nil {
		return nil
	}
	e, _ := errors.AsType[*overdueError](context.Cause(a.ctx))
	return e
}

// unconnected reports whether err came before there was a connection, and
// whether that was because it took too long.
func (a *attempt) unconnected(err error) (unconnected, late bool) {
	_, dial := errors.AsType[reverseproxy.DialError](err)
	e, ok := errors.AsType[net.Error](err)
	return dial || a.unsecured.Load(), ok && e.Timeout()
}

// traced lets ctx tell whether TLS could not be set up.
func traced(ctx context.Context, unsecured *atomic.Bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { unsecured.Store(err != nil) },
	})
}

package commit

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

const (
	// DefaultMaxBytes is more than the preamble of any known provider, and than
	// most JSON answers.
	DefaultMaxBytes = 64 << 10

	// DefaultMaxWait is below the shortest time after which intermediaries are
	// known to cut an idle connection.
	DefaultMaxWait = 10 * time.Second
)

// A Gate holds the beginnings of answers back, within two bounds. Its zero
// value holds nothing.
type Gate struct {
	// MaxBytes is how much of an answer is held at most. Lower it where memory
	// is scarce.
	MaxBytes int

	// MaxWait is how long the caller waits for the header of an answer that has
	// come without content. Lower it if something before this server cuts idle
	// connections sooner; raise it if providers fail later than that.
	MaxWait time.Duration
}

// An Opening is what the beginning of an answer has shown.
type Opening struct {
	// Disposition is policy.OK if the answer is committed, and else says how
	// the attempt ended. If that is no [policy.Disposition.Failover], the
	// answer, which can still be read, is what the caller should see.
	Disposition policy.Disposition

	// Cause is what the gate decided by.
	Cause Cause

	// Meter has watched the bytes that are held, and watches those that are
	// read from the body afterwards. It is closed when the body has ended, by
	// its end or by an error.
	Meter *format.Meter

	// Err is the error of the connection or of the context by which the
	// attempt failed, or nil.
	Err error
}

// A Cause is what a gate decided by.
type Cause string

// The causes. The set is closed.
const (
	// Content: the first content has come.
	Content Cause = "content"
	// MaxBytes and MaxWait: a bound is reached, and nothing is known.
	MaxBytes Cause = "max_bytes"
	MaxWait  Cause = "max_wait"
	// ErrorEvent: an error has come in place of content.
	ErrorEvent Cause = "error_event"
	// NoContent: the answer ended, or said that it is complete, without any.
	NoContent Cause = "no_content"
	// ReadError: the connection failed.
	ReadError Cause = "read_error"
	// ContextDone: the caller left, or the deadline has passed.
	ContextDone Cause = "context_done"
)

// Hold reads the beginning of an answer of success to op until the gate knows
// what it is, or a bound is reached, or ctx is done. The flag stream says
// whether the caller asked for a stream.
//
// It puts a body in the place of resp.Body that gives the held bytes first and
// then the rest as it comes. As ever, resp.Body must be closed, whatever the
// opening says. Close of the body that it replaces must end a Read that is
// going on, as it does for those of net/http.
func (g Gate) Hold(ctx context.Context, op *format.Operation, resp *http.Response, stream bool) Opening {
	b := &body{source: resp.Body, meter: format.NewMeter(op, resp.Header, stream)}
	resp.Body = b
	o := Opening{Cause: g.hold(ctx, b), Meter: b.meter}
	o.Disposition, o.Err = judge(ctx, o.Cause, b)
	return o
}

// hold reads until there is a cause to decide.
func (g Gate) hold(ctx context.Context, b *body) Cause {
	timer := time.NewTimer(g.MaxWait)
	defer timer.Stop()
	for len(b.held) < g.MaxBytes {
		select {
		case <-b.next(g.MaxBytes):
		case <-timer.C:
			return MaxWait
		case <-ctx.Done():
			return ContextDone
		}
		if cause := b.take(ctx); cause != "" {
			return cause
		}
	}
	return MaxBytes
}

// take takes the piece that has come, and returns the cause to decide, if it
// is one.
func (b *body) take(ctx context.Context) Cause {
	b.settle()
	if b.err == io.EOF {
		b.end()
	}
	switch b.meter.Beginning() {
	case format.Begun:
		return Content
	case format.Broken:
		if b.meter.Err() != nil {
			return ErrorEvent
		}
		return NoContent
	}
	switch {
	case b.err == nil:
		return ""
	case ctx.Err() != nil: // which is what broke the connection
		return ContextDone
	}
	return ReadError
}

// judge says what a cause means for the attempt.
func judge(ctx context.Context, cause Cause, b *body) (policy.Disposition, error) {
	switch cause {
	case ErrorEvent:
		return b.meter.Err().Disposition, nil
	case NoContent:
		return policy.UpstreamError, nil
	case ReadError:
		if e, ok := errors.AsType[net.Error](b.err); ok && e.Timeout() {
			return policy.Timeout, b.err
		}
		return policy.UpstreamError, b.err
	case ContextDone:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return policy.Timeout, ctx.Err()
		}
		return policy.ClientGone, ctx.Err()
	}
	return policy.OK, nil
}

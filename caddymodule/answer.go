package caddymodule

import (
	"errors"
	"io"

	"github.com/usherproxy/usher/policy"
)

// answer is the body of an answer on its way to the caller. It ends the
// attempt when it is closed.
//
// A stream that breaks off is ended by an error in its own format, where one
// can stand, and then still by an error of the connection: some clients know
// only the one, and some only the other.
type answer struct {
	a     *attempt
	body  io.ReadCloser
	plain bool // no more may come than its header says
	err   error
	last  []byte // words that are left, after which comes err
}

// errCutShort is the error of a stream that ended before it was complete.
var errCutShort = errors.New("the stream ended before its end")

// Read reads from the provider. The body of an answer of success shows what
// it reads to the meter.
func (b *answer) Read(p []byte) (int, error) {
	if b.err != nil {
		n := copy(p, b.last)
		b.last = b.last[n:]
		if len(b.last) > 0 {
			return n, nil
		}
		return n, b.err
	}
	b.a.watch.reading()
	n, err := b.body.Read(p)
	b.a.watch.read()
	if b.a.meter != nil {
		b.a.sawContent()
	}
	if err != nil {
		b.err = err
		b.end()
	}
	if n == 0 && b.err != nil {
		return b.Read(p)
	}
	if len(b.last) > 0 {
		return n, nil
	}
	return n, b.err
}

// end decides what the caller sees at the end of the provider's bytes.
func (b *answer) end() {
	m := b.a.meter
	if m == nil || b.a.disposition != policy.OK {
		return
	}
	if b.err == io.EOF {
		if !m.Truncated() {
			return
		}
		b.err = errCutShort
	}
	why := b.a.blame(b.err)
	if b.plain || why == policy.ClientGone {
		return
	}
	refusal := b.a.r.ended(b.a.r.ctx)
	if refusal == nil {
		refusal = b.a.failed(why, 0)
	}
	b.last = m.LastWords(*refusal)
}

// Close ends the attempt.
func (b *answer) Close() error {
	err := b.body.Close()
	b.a.finish(b.disposition())
	return err
}

func (b *answer) disposition() policy.Disposition {
	switch {
	case b.a.disposition != policy.OK: // an error, whatever became of its text
		return b.a.disposition
	case b.err == nil: // closed before its end: nobody reads on
		return policy.ClientGone
	case b.err != io.EOF:
		return b.a.blame(b.err)
	}
	if fault := b.a.meter.Err(); fault != nil {
		b.a.span.AddEvent("error_event")
		return fault.Disposition
	}
	if !b.a.meter.FirstContent() { // nothing of what was asked for
		return policy.UpstreamError
	}
	return policy.OK
}

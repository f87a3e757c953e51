package caddymodule

import (
	"io"

	"github.com/usherproxy/usher/policy"
)

// answer is the body of an answer on its way to the caller. It ends the
// attempt when it is closed.
type answer struct {
	a    *attempt
	body io.ReadCloser
	err  error // of the last read
}

// Read reads from the provider. The body of an answer of success shows what
// it reads to the meter.
func (b *answer) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if b.a.meter != nil {
		b.a.sawContent()
	}
	if err != nil {
		b.err = err
	}
	return n, err
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

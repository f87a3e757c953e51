package commit

import (
	"io"
	"sync"

	"github.com/usherproxy/usher/internal/format"
)

// firstPiece is how much is asked for at first: the preamble of an answer is
// shorter.
const firstPiece = 4 << 10

// firstPieces are used again once their reader has all that they held.
var firstPieces = sync.Pool{New: func() any { return new([firstPiece]byte) }}

// A body is that of an answer of which the beginning is held. Close may be
// called while Read waits.
type body struct {
	source io.ReadCloser
	meter  *format.Meter

	held    []byte            // what has come and not been given to the reader
	first   *[firstPiece]byte // where held stands, unless it has grown, or nil
	err     error             // by which the source ended
	pending *piece            // of the source, which a goroutine reads, or nil
	last    *piece            // that a goroutine has read, or reads; constant after Hold
}

// A piece is the result of one Read.
type piece struct {
	n    int
	err  error
	came chan struct{} // closed when the rest is set
}

// next begins to read the next piece, in the free space of the held bytes, of
// which there are fewer than limit. The result is closed when it has come.
func (b *body) next(limit int) <-chan struct{} {
	switch {
	case b.held == nil && limit >= firstPiece:
		b.first = firstPieces.Get().(*[firstPiece]byte)
		b.held = b.first[:0]
	case len(b.held) == cap(b.held):
		held := make([]byte, len(b.held), min(max(2*cap(b.held), firstPiece), limit))
		copy(held, b.held)
		b.held = held
		b.forgetFirst()
	}
	p, free := &piece{came: make(chan struct{})}, b.held[len(b.held):cap(b.held)]
	b.pending, b.last = p, p
	go func() {
		defer close(p.came)
		p.n, p.err = b.source.Read(free)
	}()
	return p.came
}

// forgetFirst gives the place of the first piece back. Nobody reads into it.
func (b *body) forgetFirst() {
	if b.first != nil {
		firstPieces.Put(b.first)
		b.first = nil
	}
}

// settle takes the piece that has come.
func (b *body) settle() {
	p := b.pending
	b.pending = nil
	fresh := b.held[len(b.held) : len(b.held)+p.n]
	b.held = b.held[:len(b.held)+p.n]
	b.watch(fresh, p.err)
}

// watch shows the meter what the source gave.
func (b *body) watch(p []byte, err error) {
	_, _ = b.meter.Write(p) // never fails
	b.err = err
}

// end shows the meter that there will be no more.
func (b *body) end() { _ = b.meter.Close() } // never fails

// Read gives what is held, and then what comes.
func (b *body) Read(p []byte) (int, error) {
	if len(b.held) == 0 && b.pending != nil {
		<-b.pending.came
		b.settle()
	}
	if len(b.held) > 0 {
		n := copy(p, b.held)
		b.held = b.held[n:]
		return n, nil
	}
	b.held = nil // it is not needed any more
	b.forgetFirst()
	if b.err != nil {
		b.end()
		return 0, b.err
	}
	n, err := b.source.Read(p)
	b.watch(p[:n], err)
	if err != nil {
		b.end()
	}
	return n, err
}

// Close closes the source, and waits for a Read of it that is going on.
func (b *body) Close() error {
	err := b.source.Close()
	if b.last != nil {
		<-b.last.came
	}
	return err
}

var _ io.ReadCloser = (*body)(nil)

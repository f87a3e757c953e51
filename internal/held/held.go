// Package held holds the body of a request for as many attempts as it takes: in
// memory if it is small, and else in a temporary file that has no name. What is
// sent is the body as it came, but for the edits of an attempt.
package held

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

// DefaultInMemory is the size up to which bodies are held in memory. Prompts
// are smaller, and pictures, sounds and files are not. A thousand requests that
// wait hold a gigabyte at most.
const DefaultInMemory = 1 << 20

// A Body is held until it is closed. Its methods may be called by several
// goroutines at once, but for Close, after which only readers that are open may
// still be used: those of a file then fail.
type Body struct {
	text []byte
	file *os.File // or nil; then text is nil
	name string   // of the file, if it could not be removed while it is open
	size int64
}

// A HoldError is the error of a temporary file: nothing is wrong with the body.
type HoldError struct{ Err error }

// Error tells what failed.
func (e *HoldError) Error() string {
	return fmt.Sprintf("hold a large body in a temporary file: %v", e.Err)
}

// Unwrap returns the error of the file.
func (e *HoldError) Unwrap() error { return e.Err }

const (
	// believed is how much memory is taken at most for a body that is said to
	// be so large, before any of it has come.
	believed = 64 << 10

	// leastRead is how much is taken at least.
	leastRead = 512
)

// Read reads r to its end, which is said to come after size bytes, or -1 if that
// is not known. Of a body with more than inMemory bytes nothing stays
// in memory. The caller closes the body. The error is that of r, or a
// [*HoldError].
func Read(r io.Reader, size int64, inMemory int) (*Body, error) {
	text, err := readAll(io.LimitReader(r, int64(inMemory)+1), min(max(size, leastRead), believed))
	if err != nil {
		return nil, err
	}
	if len(text) <= inMemory {
		return &Body{text: text, size: int64(len(text))}, nil
	}
	return spill(text, r)
}

// readAll is [io.ReadAll] for a text that is expected to have the given size.
func readAll(r io.Reader, size int64) ([]byte, error) {
	text := make([]byte, 0, size+1) // one more, to see the end
	for {
		n, err := r.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case err == io.EOF:
			return text, nil
		case err != nil:
			return nil, err
		case len(text) == cap(text):
			text = append(text, 0)[:len(text)]
		}
	}
}

// spill holds a beginning and the rest of a body in a file.
func spill(beginning []byte, rest io.Reader) (*Body, error) {
	file, err := os.CreateTemp("", "usher-body-")
	if err != nil {
		return nil, &HoldError{err}
	}
	b := &Body{file: file}
	if err := os.Remove(file.Name()); err != nil {
		b.name = file.Name() // there are systems where files that are open stay
	}
	n, err := file.Write(beginning)
	b.size = int64(n)
	if err == nil {
		var copied int64
		// A reader and a writer of their own, so that the errors of one can be
		// told from those of the other.
		source := &noting{Reader: rest}
		copied, err = io.Copy(onlyWriter{file}, source)
		b.size += copied
		if source.err != nil {
			_ = b.Close() // the other error says more
			return nil, source.err
		}
	}
	if err != nil {
		_ = b.Close()
		return nil, &HoldError{err}
	}
	return b, nil
}

// noting notes an error of reading.
type noting struct {
	io.Reader
	err error
}

// Read reads, and notes the error.
func (n *noting) Read(p []byte) (int, error) {
	k, err := n.Reader.Read(p)
	if err != nil && err != io.EOF {
		n.err = err
	}
	return k, err
}

// onlyWriter hides what else a file can do.
type onlyWriter struct{ io.Writer }

// Size returns the size in bytes.
func (b *Body) Size() int64 { return b.size }

// View calls see with the whole body, which is valid and constant until see
// returns. A body in a file is mapped, and takes no memory of the heap. The error
// is that of see, or a [*HoldError].
func (b *Body) View(see func([]byte) error) (err error) {
	if b.file == nil {
		return see(b.text)
	}
	text, done, err := mapped(b.file, b.size)
	if err != nil {
		return &HoldError{err}
	}
	defer done()
	// A disk that fails is a fault of memory here.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case memoryFault:
			err = &HoldError{fault}
		default:
			panic(fault)
		}
	}()
	return see(text)
}

// A memoryFault is what the runtime panics with: see [debug.SetPanicOnFault].
type memoryFault interface {
	error
	Addr() uintptr
}

// Bytes returns a copy of the body, or the body itself if it is in memory, which
// must not be changed.
func (b *Body) Bytes() (text []byte, err error) {
	if b.file == nil {
		return b.text, nil
	}
	err = b.View(func(p []byte) error {
		text = bytes.Clone(p)
		return nil
	})
	return text, err
}

// Open returns a reader of the body with the edits made, and how many bytes it
// gives. Several may be open at once. Closing one does nothing.
func (b *Body) Open(edits []Edit) (io.ReadCloser, int64) {
	if len(edits) == 0 {
		return b.section(0, b.size), b.size
	}
	var pieces []io.Reader
	size, at := b.size, int64(0)
	for _, e := range edits {
		pieces = append(pieces, b.section(at, e.Start), bytes.NewReader(e.Text))
		at = e.End
		size += int64(len(e.Text)) - (e.End - e.Start)
	}
	pieces = append(pieces, b.section(at, b.size))
	return io.NopCloser(io.MultiReader(pieces...)), size
}

// section returns a reader of a part of the body.
func (b *Body) section(start, end int64) io.ReadCloser {
	if b.file == nil {
		return io.NopCloser(bytes.NewReader(b.text[start:end]))
	}
	return io.NopCloser(io.NewSectionReader(b.file, start, end-start))
}

// Close lets the body go. It may be called again.
func (b *Body) Close() error {
	if b.file == nil {
		return nil
	}
	err := b.file.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	if b.name != "" {
		err = errors.Join(err, os.Remove(b.name))
	}
	return err
}

// An Edit replaces a part of a body by another text.
type Edit struct {
	// Start is where the part begins, and End where it ends, exclusive. They
	// are equal where the text is put in.
	Start, End int64
	// Text is what stands there then.
	Text []byte
}

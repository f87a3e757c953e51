package caddymodule

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/internal/held"
)

// readBody reads the whole body of a request, and returns it in plain, or why
// it is refused. The limit holds for what is sent and for what that becomes.
// The caller closes the body.
func readBody(w http.ResponseWriter, in *http.Request, limit int64) (*held.Body, *format.Refusal) {
	refuse := func(f format.Refusal) (*held.Body, *format.Refusal) {
		leaveUnread(w, in)
		return nil, &f
	}
	if in.ContentLength > limit {
		return refuse(format.TooLarge(limit))
	}
	plain, err := decode(http.MaxBytesReader(w, in.Body, limit), in.Header.Get("Content-Encoding"))
	if errors.Is(err, errUnknownEncoding) {
		w.Header().Set("Accept-Encoding", encodings)
		return refuse(format.UnknownEncoding())
	}
	var body *held.Body
	if err == nil {
		body, err = held.Read(io.LimitReader(plain, limit+1), in.ContentLength, held.DefaultInMemory)
		_ = plain.Close() // it has been read
	}
	if body != nil && body.Size() > limit {
		_ = body.Close() // of what nobody has seen
		return refuse(format.TooLarge(limit))
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(format.TooLarge(limit))
	}
	if _, ok := errors.AsType[*held.HoldError](err); ok {
		return refuse(format.NotHeld())
	}
	if err != nil {
		return refuse(format.Unreadable())
	}
	return body, nil
}

// breakOff lets the reading of a body fail when ctx ends, until stop is called:
// else nothing bounds how long it takes. The writer is not used any more when
// stop has returned.
func breakOff(ctx context.Context, w http.ResponseWriter) (stop func()) {
	done := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // all servers of Caddy know it
	})
	return func() {
		if !unregister() {
			<-done
		}
	}
}

// encodings are those in which bodies may be sent: clients such as Codex
// compress them unasked.
const encodings = "gzip, zstd"

// errUnknownEncoding is the error of a body in any other encoding.
var errUnknownEncoding = errors.New("unknown content encoding")

// zstdWindow is how far back the data of a stream may refer, which is how much
// memory it takes to read it. It is what RFC 9659 allows.
const zstdWindow = 8 << 20

// decode returns what a body of the given content encoding is in plain.
func decode(body io.Reader, encoding string) (io.ReadCloser, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return io.NopCloser(body), nil
	case "gzip", "x-gzip":
		r, err := gzip.NewReader(body)
		if err != nil {
			return nil, fmt.Errorf("read gzip: %w", err)
		}
		return r, nil
	case "zstd":
		r, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, fmt.Errorf("read zstd: %w", err)
		}
		return r.IOReadCloser(), nil
	}
	return nil, errUnknownEncoding
}

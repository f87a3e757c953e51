package format

import (
	"bytes"
	"io"
	"mime"
	"net/http"
)

// IsStream reports whether an answer with the header is a stream of server-sent
// events that can be read.
func IsStream(h http.Header) bool {
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return media == "text/event-stream" && answerKindOf(h, true) == eventStream
}

// WithoutUsage returns a stream without the chunk of a chat or completion that
// tells nothing but its usage, for a caller who has not asked for it. All other
// bytes are those of the stream, and each event comes as soon as it is complete.
func WithoutUsage(stream io.ReadCloser) io.ReadCloser { return &usageFilter{stream: stream} }

// maxUsageChunk is the greatest size of a chunk that may be left out.
const maxUsageChunk = 16 << 10

type usageFilter struct {
	stream io.ReadCloser
	err    error
	piece  [4 << 10]byte

	event   []byte // the event that is not complete
	inLine  bool   // its last line has begun
	large   bool   // it is larger than a chunk with nothing but usage is
	passing []byte // what the reader gets
}

// Read reads what is complete, or waits for it.
func (f *usageFilter) Read(p []byte) (int, error) {
	for len(f.passing) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		f.passing = f.passing[:0]
		n, err := f.stream.Read(f.piece[:])
		f.take(f.piece[:n])
		if err != nil {
			f.err = err
			f.end()
		}
	}
	n := copy(p, f.passing)
	f.passing = f.passing[n:]
	return n, nil
}

// Close closes the stream.
func (f *usageFilter) Close() error { return f.stream.Close() }

// take takes the next bytes.
func (f *usageFilter) take(p []byte) {
	for len(p) > 0 {
		n := bytes.IndexByte(p, '\n') + 1
		whole := n > 0
		if !whole {
			n = len(p)
		}
		f.event = append(f.event, p[:n]...)
		f.inLine = f.inLine || len(bytes.Trim(p[:n], "\r\n")) > 0
		if p = p[n:]; whole && !f.inLine {
			f.end()
		}
		f.inLine = f.inLine && !whole
		if len(f.event) > maxUsageChunk {
			f.pass()
			f.large = true
		}
	}
}

// end ends an event, and passes it on unless it is what must be left out.
func (f *usageFilter) end() {
	if f.large || !usageOnly(f.event) {
		f.pass()
	}
	f.event, f.large = f.event[:0], false
}

// pass passes on what there is of the event.
func (f *usageFilter) pass() {
	f.passing = append(f.passing, f.event...)
	f.event = f.event[:0]
}

// usageOnly reports whether an event is a chunk with usage and no choices.
func usageOnly(event []byte) bool {
	var data []byte
	for line := range bytes.Lines(event) {
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, value...)
		}
	}
	if !valid(data) {
		return false
	}
	chunk := view(data)
	choices := chunk.Get("choices")
	return choices.IsArray() && empty(choices) && chunk.Get("usage").IsObject() && !chunk.Get("error").Exists()
}

package format

import (
	"bytes"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/usherproxy/usher/internal/format/jsonlist"
	"github.com/usherproxy/usher/internal/format/jsonscan"
	"github.com/usherproxy/usher/internal/format/sse"
	"github.com/usherproxy/usher/policy"
)

// A Meter watches an answer of success while it passes, and tells what it
// means. It changes nothing, never fails, and holds no more than some
// kilobytes, whatever the answer is. It is not safe for concurrent use.
type Meter struct {
	op      *Operation
	dialect *dialect
	kind    answerKind
	events  sse.Decoder
	text    *jsonscan.Scanner
	plain   []byte // the beginning of an event's data
	size    int    // of the event's data

	list      jsonlist.Decoder
	counts    counts
	fault     *StreamFault
	beginning Beginning
	content   bool
	ends      bool // the answer is of a kind that tells its end
	done      bool
	keeps     bool
	id        string

	closing bool // the answer has ended
	cut     bool // inside an event

	// Where the answer stood when it was closed.
	inEvent, between bool
	before           string // what must stand before one more element
}

// A Beginning is what the beginning of an answer has shown of the rest. Once it
// is not [Unclear] it stays, and it is the same however the bytes come.
type Beginning uint8

// The beginnings.
const (
	// Unclear is that of an answer with nothing but preamble, or with a part
	// of a JSON text: only the whole of it tells success from an error.
	Unclear Beginning = iota
	// Begun is that of an answer with content, before any error.
	Begun
	// Broken is that of an answer with an error before any content, or which
	// ended without content, or inside a JSON text.
	Broken
)

// A StreamFault is an error that stands inside an answer of success.
type StreamFault struct {
	// Disposition is what the error means.
	Disposition policy.Disposition

	// About is what the error is about, for RateLimited, QuotaExhausted and
	// AuthFailed if it told, and else empty.
	About policy.Subject

	// Type and Code are the words of the error, cut to 64 bytes. They come
	// from the provider.
	Type, Code string

	reset reset
}

// Until returns when the provider may be asked again, for RateLimited and
// QuotaExhausted if the error said so, and else the zero time. The answer was
// read at the time now.
func (f *StreamFault) Until(now time.Time) time.Time {
	longest, limited := longest[f.Disposition]
	wait, ok := f.reset.wait(now)
	return until(now, wait, ok && limited, longest)
}

// An answerKind is how an answer is read.
type answerKind uint8

const (
	unreadable answerKind = iota // encoded, or of another media type
	jsonText
	jsonList // a stream whose events are the elements of a list
	eventStream
)

// What is looked for in a JSON answer, and in the data of each event.
const (
	atError = iota
	atResponseError
	atUsage
	atResponseUsage
	atType
	atObject
	atCode
	atMessage
	atChoices
	atUsageMetadata
	atCandidates
	atPromptFeedback
	atID
	atResponseID
)

var answerPaths = []jsonscan.Path{
	atError:         {"error"},
	atResponseError: {"response", "error"},
	atUsage:         {"usage"},
	atResponseUsage: {"response", "usage"},
	atType:          {"type"},
	atObject:        {"object"},
	atCode:          {"code"},
	atMessage:       {"message"},
	atChoices:       {"choices"},

	atUsageMetadata:  {"usageMetadata"},
	atCandidates:     {"candidates"},
	atPromptFeedback: {"promptFeedback"},

	atID:         {"id"},
	atResponseID: {"response", "id"},
}

// maxValue bounds what is kept of each value that is looked at.
const maxValue = 16 << 10

// maxPlain bounds what is kept of data that may be the word [DONE].
const maxPlain = 16

// NewMeter returns a Meter for an answer of op with the given header. The flag
// stream says whether the caller asked for a stream. Of an answer with a
// content encoding nothing is known but that it has content.
func NewMeter(op *Operation, header http.Header, stream bool) *Meter {
	m := &Meter{op: op, dialect: op.shape(), kind: answerKindOf(header, stream)}
	if m.kind == jsonText && stream && m.dialect.lists {
		m.kind = jsonList
	}
	m.counts.known = op != nil && op.Free
	m.keeps = op != nil && op.Keeps
	if op != nil && op.unnamed() { // whatever it is, it is what was asked for
		m.kind, m.content, m.beginning = unreadable, true, Begun
	}
	if m.kind != unreadable {
		m.text = jsonscan.New(maxValue, answerPaths...)
	}
	m.events = sse.Decoder{Data: m.data, Event: m.event}
	m.list = jsonlist.Decoder{Data: m.data, Element: func() { m.event(nil) }}
	return m
}

// answerKindOf tells how an answer is to be read. A stream that says to be
// anything but JSON is read as events: so a page of HTML has no content.
func answerKindOf(h http.Header, stream bool) answerKind {
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return unreadable
	}
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case strings.HasSuffix(media, "json"):
		return jsonText
	case media == "text/event-stream", stream:
		return eventStream
	case media == "":
		return jsonText
	}
	return unreadable
}

// Write watches the next bytes of the answer. It always takes all of p.
func (m *Meter) Write(p []byte) (int, error) {
	switch m.kind {
	case eventStream:
		m.events.Write(p)
	case jsonList:
		m.list.Write(p)
	case jsonText:
		m.content = m.content || len(bytes.TrimSpace(p)) > 0
		m.text.Write(p)
		if !m.done && m.text.Complete() {
			m.done = true
			m.body()
			m.settle(m.fault == nil)
		}
	default:
		if len(p) > 0 {
			m.content = true
			m.settle(true)
		}
	}
	return len(p), nil
}

// place notes where the answer stands, before its end makes that a place like
// any other.
func (m *Meter) place() {
	m.inEvent = m.InEvent()
	m.before, m.between = m.list.Next()
}

// Close ends the answer: what stands in a JSON text that was cut, or in a last
// event that no blank line has ended, counts, too. It returns nil.
func (m *Meter) Close() error {
	m.place()
	m.closing = true
	switch m.kind {
	case eventStream:
		m.events.Close()
	case jsonList:
		m.list.Close()
	case jsonText:
		m.body()
		m.settle(m.content && m.fault == nil && !m.text.Inside())
	}
	m.settle(false)
	return nil
}

// settle says what the beginning has shown, if nothing has yet.
func (m *Meter) settle(begun bool) {
	switch {
	case m.beginning != Unclear:
	case begun:
		m.beginning = Begun
	default:
		m.beginning = Broken
	}
}

// Usage returns what the answer has told of its usage, or nil if that is
// nothing.
func (m *Meter) Usage() *policy.Usage { return m.counts.usage() }

// FirstContent reports whether the answer has had content: an event that is
// more than preamble, or a byte of another answer.
func (m *Meter) FirstContent() bool { return m.content }

// Beginning tells what the beginning of the answer has shown: whether another
// candidate may still serve the request in its place.
func (m *Meter) Beginning() Beginning { return m.beginning }

// Err returns the error that the answer told, or nil.
func (m *Meter) Err() *StreamFault { return m.fault }

// maxID is the greatest length of an ID that is believed.
const maxID = 256

// ID returns the name by which later requests may refer to the answer, once it
// has told it, or the empty string: see [Operation.Keeps].
func (m *Meter) ID() string {
	if m.id == "" && m.keeps && m.kind == jsonText {
		m.readID()
	}
	return m.id
}

// readID takes the ID that the text has, if it has one.
func (m *Meter) readID() {
	for _, at := range []int{atResponseID, atID} {
		if id := m.word(at); m.id == "" && len(id) <= maxID {
			m.id = strings.Clone(id)
		}
	}
}

// Done reports whether the answer said that it is complete: by [DONE], a
// terminal event or a finish reason of a stream, or by the last brace of a
// JSON text. An answer that ends without may be complete as well.
func (m *Meter) Done() bool { return m.done }

// Truncated reports whether a stream that has ended was not complete: it had
// content, and ended inside an event, or was of a kind that tells its end, but
// did not.
func (m *Meter) Truncated() bool {
	return (m.ends || m.cut) && m.content && !m.done && m.fault == nil
}

// InEvent reports whether a stream stands inside an event, where nothing else
// may be sent. In a stream that comes as a list of JSON there is no such place.
func (m *Meter) InEvent() bool {
	return m.kind == jsonList || m.kind == eventStream && m.events.InEvent()
}

// LastWords returns the error r as that which ends a stream that was cut and
// closed. It is nil where no error can stand: inside an event, in
// an answer that is no stream, and after an error or the end of the stream.
func (m *Meter) LastWords(r Refusal) []byte {
	switch {
	case m.fault != nil || m.done:
	case m.kind == eventStream && !m.inEvent:
		return m.op.StreamError(r)
	case m.kind == jsonList && m.between:
		return append(append([]byte(m.before), encode(m.dialect.refusal(r))...), ']')
	}
	return nil
}

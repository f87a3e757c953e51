package caddymodule

import (
	"io"
	"maps"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/internal/format/sse"
	"github.com/usherproxy/usher/policy"
)

// beat is a comment, which every reader of event streams passes over.
const beat = ": heartbeat\n\n"

// A pulse is the writer of an answer that is to be a stream of events. It sends
// a comment whenever nothing has been sent for some time, so that nothing on
// the way takes the connection for dead; never inside an event. The first one
// sends the header, too, with status 200: what comes later can then be told
// only inside the stream.
//
// Its methods may be called by one goroutine at a time.
type pulse struct {
	every  time.Duration
	header http.Header // of the handler; that of the connection is the timer's, too

	mu     sync.Mutex
	w      http.ResponseWriter
	timer  *time.Timer
	begun  bool // the header is sent
	early  bool // by a heartbeat
	still  bool // there are no more heartbeats
	events sse.Decoder
}

func newPulse(w http.ResponseWriter, every time.Duration) *pulse {
	p := &pulse{every: every, header: w.Header().Clone(), w: w}
	p.events = sse.Decoder{Data: func([]byte) {}, Event: func([]byte) {}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(every, p.beat)
	return p
}

// beat sends a heartbeat, if one may be sent now.
func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.still {
		return
	}
	p.timer.Reset(p.every)
	if p.events.InEvent() {
		return
	}
	if !p.begun {
		p.begun, p.early = true, true
		p.w.Header().Set("Content-Type", "text/event-stream")
		p.w.Header().Set("Cache-Control", "no-cache")
		p.w.WriteHeader(http.StatusOK)
	}
	if _, err := io.WriteString(p.w, beat); err != nil || p.flushLocked() != nil { // the caller left
		p.still = true
	}
}

// stop ends the heartbeats, and reports whether one has sent the header.
func (p *pulse) stop() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.still = true
	p.timer.Stop()
	return p.early
}

// Header returns the header that WriteHeader sends.
func (p *pulse) Header() http.Header { return p.header }

// WriteHeader sends the header, unless a heartbeat has.
func (p *pulse) WriteHeader(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writeHeaderLocked(status)
}

func (p *pulse) writeHeaderLocked(status int) {
	if p.early {
		return
	}
	p.begun = p.begun || status >= http.StatusOK
	p.still = p.still || status >= http.StatusOK && !isEventStream(status, p.header)
	clear(p.w.Header())
	maps.Copy(p.w.Header(), p.header)
	p.w.WriteHeader(status)
}

// Write sends a piece of the answer.
func (p *pulse) Write(piece []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun {
		p.writeHeaderLocked(http.StatusOK)
	}
	n, err := p.w.Write(piece)
	p.events.Write(piece[:n])
	if !p.still {
		p.timer.Reset(p.every)
	}
	return n, err
}

// FlushError sends what has been written.
func (p *pulse) FlushError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flushLocked()
}

func (p *pulse) flushLocked() error { return http.NewResponseController(p.w).Flush() }

// isEventStream reports whether an answer can have comments between its events.
func isEventStream(status int, h http.Header) bool {
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return status == http.StatusOK && media == "text/event-stream" && h.Get("Content-Encoding") == "" && h.Get("Content-Length") == ""
}

// afterHeartbeat returns resp as it can still be sent: as it is, unless a
// heartbeat has promised a stream that it is not. Then it is told as an error
// inside that.
func (r *run) afterHeartbeat(resp *http.Response) (*http.Response, error) {
	if isEventStream(resp.StatusCode, resp.Header) || !r.pulse.stop() {
		return resp, nil
	}
	if r.attempt.disposition == policy.OK { // it is no stream, though one was asked for
		r.attempt.disposition = policy.UpstreamError
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // as much as there is
	_ = resp.Body.Close()
	refusal := format.Failed(r.attempt.disposition, 0)
	return nil, &refusalError{refusal, r.op.StreamErrorOf(text, refusal)}
}

// tell ends an answer that a heartbeat has begun with an event. It panics, so
// that nobody takes that for the end of a whole answer.
func (r *run) tell(w http.ResponseWriter, event []byte) {
	r.record.Status = http.StatusOK
	_, _ = w.Write(event) // nobody is left to hear of an error
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

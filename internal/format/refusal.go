package format

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
)

// HeaderReason is the header that tells a refusal of Usher from an error of a
// provider. Its value is the code of the refusal.
const HeaderReason = "X-Usher-Reason"

// A Refusal is an answer of Usher's own that is an error. Nothing of it comes
// from a provider or a prompt.
type Refusal struct {
	// Status is the HTTP status.
	Status int

	// Type is the kind of error in the format's own words, Code the reason
	// from a closed set, and Message a sentence for the caller.
	Type, Code, Message string

	// Param is the member of the request that is wrong, or empty.
	Param string

	// RetryAfter is how long the caller should wait, or 0 if that is unknown.
	RetryAfter time.Duration

	// ShouldRetry tells the SDKs, which else decide by the status, whether it
	// is any use to try again. It may be nil.
	ShouldRetry *bool
}

// WriteRefusal answers with r in the format of op.
func (op *Operation) WriteRefusal(w http.ResponseWriter, r Refusal) {
	h := w.Header()
	h.Del("Content-Encoding")
	h.Set(HeaderReason, r.Code)
	SetRetryAfter(h, r.RetryAfter)
	if r.ShouldRetry != nil {
		h.Set("X-Should-Retry", strconv.FormatBool(*r.ShouldRetry))
	}
	writeJSON(w, r.Status, op.shape().refusal(r))
}

// StreamError returns r as the event that tells an error inside a stream of op
// that has begun. It may stand only between two events: see [Meter.InEvent].
func (op *Operation) StreamError(r Refusal) []byte {
	name, data := op.shape().errorEvent, op.shape().refusal(r)
	if op != nil && op.streamError != nil {
		name, data = op.streamError(r)
	}
	return eventOf(name, encode(data))
}

// StreamErrorOf returns the error that is the body of a provider's answer as an
// event of a stream, or otherwise r if there is none.
func (op *Operation) StreamErrorOf(body []byte, r Refusal) []byte {
	if !valid(body) {
		return op.StreamError(r)
	}
	text := gjson.ParseBytes(body)
	if text.IsArray() {
		text = text.Get("0")
	}
	e := text.Get("error")
	switch {
	case !e.IsObject():
		return op.StreamError(r)
	case op != nil && op.streamError != nil:
		r.Message, r.Param = e.Get("message").String(), e.Get("param").String()
		r.Code = cmp.Or(e.Get("code").String(), e.Get("type").String(), r.Code)
		return op.StreamError(r)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, []byte(text.Raw)); err != nil {
		return op.StreamError(r)
	}
	return eventOf(op.shape().errorEvent, line.Bytes())
}

// eventOf returns an event of a stream.
func eventOf(name string, data []byte) []byte {
	var event []byte
	if name != "" {
		event = append(event, "event: "+name+"\n"...)
	}
	event = append(event, "data: "...)
	event = append(event, data...)
	return append(event, "\n\n"...)
}

// AnswersInEvents reports whether a stream of op comes as server-sent events
// when u is asked for, and not as a list of JSON.
func (op *Operation) AnswersInEvents(u *url.URL) bool {
	return !op.shape().lists || u.Query().Get("alt") == "sse"
}

// SetRetryAfter tells the caller to wait: in whole seconds, rounded up, and in
// milliseconds, at which the SDKs look first. It does nothing if wait is 0 or
// less.
func SetRetryAfter(h http.Header, wait time.Duration) {
	if wait <= 0 {
		return
	}
	h.Set("Retry-After", units(wait, time.Second))
	h.Set("Retry-After-Ms", units(wait, time.Millisecond))
}

// units returns d, which is longer than 0, in whole units, rounded up.
func units(d, unit time.Duration) string { return strconv.FormatInt(int64((d-1)/unit)+1, 10) }

// writeJSON answers with v. An error of writing is that of a caller who left.
func writeJSON(w http.ResponseWriter, status int, v any) {
	text := encode(v)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// encode returns v, a value of this package's own types, as JSON in one line.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers always have a text
	}
	return text
}

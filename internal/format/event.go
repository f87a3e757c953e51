package format

import (
	"bytes"
	"strings"

	"github.com/tidwall/gjson"
)

// An eventKind is what an event of a stream means.
type eventKind uint8

const (
	content  eventKind = iota // what the caller asked for
	preamble                  // sent before the first content, or to keep the line open
	terminal                  // content, with which the answer is complete
	ending                    // the answer is complete
	fault                     // an error
)

// data takes a piece of an event's data.
func (m *Meter) data(p []byte) {
	m.text.Write(p)
	m.plain = append(m.plain, p[:min(len(p), maxPlain-len(m.plain))]...)
	m.size += len(p)
}

// event takes the end of an event.
func (m *Meter) event(name []byte) {
	if m.closing && !m.text.Complete() && !m.isDone() {
		m.cut = true // the stream ended inside its data, of which nothing can be said
		return
	}
	switch m.eventKind(name) {
	case content:
		m.content = true
		m.settle(true)
	case terminal:
		m.content, m.done = true, true
		m.settle(true)
	case ending:
		m.done = true
		m.settle(false)
	case fault:
		m.fail()
		m.settle(false)
	}
	if m.keeps && m.id == "" {
		m.readID()
	}
	m.readUsage()
	m.text.Reset()
	m.plain, m.size = m.plain[:0], 0
}

// isDone reports whether the event says that the stream has ended.
func (m *Meter) isDone() bool {
	return m.size <= maxPlain && string(bytes.TrimSpace(m.plain)) == "[DONE]"
}

// eventKind tells what the event means whose data is complete.
func (m *Meter) eventKind(name []byte) eventKind {
	if m.isDone() {
		return ending
	}
	if m.size <= maxPlain && len(bytes.TrimSpace(m.plain)) == 0 {
		return preamble
	}
	if m.hasError() {
		return fault
	}
	if kind, ok := m.dialect.events[m.word(atType)]; ok {
		m.ends = m.ends || m.word(atType) == m.dialect.begins
		return kind
	}
	if kind, ok := m.dialect.events[string(name)]; ok {
		m.ends = m.ends || string(name) == m.dialect.begins
		return kind
	}
	return m.dialect.chunk(m)
}

// choices tells what a chunk of a chat or completion means by its choices. A
// chunk without any carries usage, or a provider's own remarks. Where there is
// no such member, nothing is known, and nothing must be held back.
//
// A chunk that mentions a finish reason, though it is null or (at Ollama and
// SGLang, once) empty, promises that one comes. Some providers know none and end
// where the connection does: they must not be taken for cut.
func (m *Meter) choices() eventKind {
	v := m.text.Value(atChoices)
	if v.Raw == nil {
		return content
	}
	kind := preamble
	view(v.Raw).ForEach(func(_, choice gjson.Result) bool {
		reason := choice.Get("finish_reason")
		m.ends = m.ends || reason.Exists()
		switch {
		case reason.Type == gjson.String && reason.Str != "":
			kind = terminal
		case kind == preamble && (!empty(choice.Get("text")) || hasContent(choice.Get("delta"))):
			kind = content
		}
		return true
	})
	return kind
}

// hasContent reports whether a delta has anything but a role: text, a refusal,
// a call, sound, or the reasoning that providers have several names for.
func hasContent(delta gjson.Result) (has bool) {
	delta.ForEach(func(key, value gjson.Result) bool {
		has = key.Str != "role" && !empty(value)
		return !has
	})
	return has
}

// empty reports whether a value says nothing.
func empty(v gjson.Result) bool {
	switch v.Type {
	case gjson.Null, gjson.False:
		return true
	case gjson.String:
		return v.Str == ""
	case gjson.JSON:
		none := true
		v.ForEach(func(_, _ gjson.Result) bool {
			none = false
			return false
		})
		return none
	}
	return false
}

// body takes the end of a JSON answer.
func (m *Meter) body() {
	if m.hasError() {
		m.fail()
	}
	m.readUsage()
}

// readUsage takes the usage that the text has, if it has one.
func (m *Meter) readUsage() {
	for _, at := range m.dialect.usage.at {
		if raw := m.text.Value(at).Raw; raw != nil {
			m.counts.take(&m.dialect.usage, raw)
		}
	}
}

// hasError reports whether the text tells an error.
func (m *Meter) hasError() bool {
	for _, at := range []int{atError, atResponseError} {
		if v := m.text.Value(at); v.TooLong || !empty(view(v.Raw)) {
			return true
		}
	}
	return m.word(atObject) == "error"
}

// fail takes the error of the text. The first one holds: a second one only
// ends the stream.
func (m *Meter) fail() {
	if m.fault != nil {
		return
	}
	e := m.readFault()
	m.fault = &StreamFault{Type: brief(e.kind), Code: brief(e.code), reset: e.reset}
	m.fault.Disposition, m.fault.About = m.dialect.classify(e)
}

// readFault reads the error of the text, which may stand at its top.
func (m *Meter) readFault() providerError {
	for _, at := range []int{atError, atResponseError} {
		if raw := m.text.Value(at).Raw; raw != nil && !empty(view(raw)) {
			return errorIn(inStream, view(raw))
		}
	}
	return providerError{
		status:  statusIn(view(m.text.Value(atCode).Raw)),
		code:    m.word(atCode),
		kind:    m.word(atType),
		message: strings.ToLower(m.word(atMessage)),
	}
}

// word returns the string at a path, or nothing.
func (m *Meter) word(at int) string { return view(m.text.Value(at).Raw).Str }

// maxBrief bounds the words of a provider that are shown.
const maxBrief = 64

// brief returns a copy of s that is short and valid text.
func brief(s string) string {
	return strings.ToValidUTF8(strings.Clone(s[:min(len(s), maxBrief)]), "")
}

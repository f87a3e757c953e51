// Package sse frames event streams that arrive in pieces, by the rules of the
// WHATWG: https://html.spec.whatwg.org/multipage/server-sent-events.html
//
// It works on bytes and at any split of them, and holds no event: data is
// handed on as it comes, so an event of any size costs no memory.
package sse

import "bytes"

// maxWord bounds what is kept of a field's name and of an event's name. Longer
// ones are none that anybody waits for.
const maxWord = 64

// A Decoder finds the events in what is written to it. The zero value, with
// its functions set, is ready to read a stream from its beginning.
type Decoder struct {
	// Data is called with each piece of an event's data. The pieces of one
	// event are to be joined as they are. A piece must not be kept.
	Data func(p []byte)

	// Event is called at the end of each event that has data. The name is
	// that of its event field, cut to 64 bytes, or empty. It must not be kept.
	Event func(name []byte)

	state   state
	field   []byte // the field name that is being read
	name    []byte // the event's name as far as read
	bom     int    // bytes of a byte order mark seen; -1 once none can come
	afterCR bool   // a line feed now belongs to the carriage return before
	hasData bool   // the event has a data field
	open    bool   // the event has a line of its own
}

// A state says which part of a line comes next.
type state uint8

const (
	inName    state = iota // the field's name, from the beginning of the line
	beforeVal              // the one space that may follow the colon
	inData                 // the value of a data field
	inEvent                // the value of an event field
	inOther                // a comment, or the value of another field
)

var mark = []byte("\xEF\xBB\xBF")

// Write reads the next bytes of the stream. It keeps nothing of p.
func (d *Decoder) Write(p []byte) {
	p = d.skipMark(p)
	for len(p) > 0 {
		if d.afterCR {
			d.afterCR = false
			if p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		end := lineEnd(p)
		d.read(p[:end])
		if end == len(p) {
			return
		}
		d.afterCR = p[end] == '\r'
		d.endLine()
		p = p[end+1:]
	}
}

// Close ends the stream. The WHATWG drops an event that no blank line has
// ended; Close reports it, since providers do end streams that way.
func (d *Decoder) Close() {
	if d.state != inName || len(d.field) > 0 {
		d.endLine()
	}
	d.dispatch()
}

// InEvent reports whether the stream stands inside an event or a line, so that
// nothing else may be sent there.
func (d *Decoder) InEvent() bool {
	return d.open || d.state != inName || len(d.field) > 0
}

// skipMark drops a byte order mark at the beginning of the stream.
func (d *Decoder) skipMark(p []byte) []byte {
	for ; d.bom >= 0 && len(p) > 0; p = p[1:] {
		if d.bom == len(mark) {
			d.bom = -1
			break
		}
		if p[0] != mark[d.bom] {
			d.read(mark[:d.bom]) // it was none: these are bytes of the first line
			d.bom = -1
			break
		}
		d.bom++
	}
	return p
}

// lineEnd returns the index of the first line terminator in p, or len(p).
func lineEnd(p []byte) int {
	end := len(p)
	if i := bytes.IndexByte(p, '\n'); i >= 0 {
		end = i
	}
	if i := bytes.IndexByte(p[:end], '\r'); i >= 0 {
		end = i
	}
	return end
}

// read takes bytes of the current line.
func (d *Decoder) read(p []byte) {
	if d.state == inName && len(p) > 0 {
		name, value, colon := bytes.Cut(p, []byte(":"))
		d.field = appendWord(d.field, name)
		if !colon {
			return
		}
		d.state, p = beforeVal, value
	}
	if d.state == beforeVal && len(p) > 0 {
		p = bytes.TrimPrefix(p, []byte(" "))
		d.beginValue()
	}
	switch d.state {
	case inData:
		if len(p) > 0 {
			d.Data(p)
		}
	case inEvent:
		d.name = appendWord(d.name, p)
	}
}

// beginValue leaves the field's name and enters its value.
func (d *Decoder) beginValue() {
	switch string(d.field) {
	case "data":
		if d.hasData {
			d.Data([]byte("\n"))
		}
		d.hasData = true
		d.state = inData
	case "event":
		d.name = d.name[:0]
		d.state = inEvent
	default:
		d.state = inOther
	}
}

// endLine ends a line; a blank one ends the event.
func (d *Decoder) endLine() {
	if d.state == inName && len(d.field) == 0 {
		d.dispatch()
		return
	}
	d.open = d.open || len(d.field) > 0
	if d.state < inData { // a field without a value, or with an empty one
		d.beginValue()
	}
	d.state, d.field = inName, d.field[:0]
}

// dispatch ends the event.
func (d *Decoder) dispatch() {
	if d.hasData {
		d.Event(d.name)
	}
	d.open, d.hasData, d.name = false, false, d.name[:0]
}

// appendWord appends p to word within the bound.
func appendWord(word, p []byte) []byte {
	return append(word, p[:min(len(p), maxWord-len(word))]...)
}

// Package jsonlist splits a JSON list that arrives in pieces into its elements.
//
// It holds nothing: data is handed on as it comes, so an element of any size
// costs no memory. It does not validate: of a text that is not JSON it makes
// elements of some kind, but always in linear time.
package jsonlist

import "bytes"

// A Decoder finds the elements of the list that is written to it. A text that
// is not a list is one element. The zero value, with its functions set, is
// ready to read a text from its beginning.
type Decoder struct {
	// Data is called with each piece of an element. The pieces of one element
	// are to be joined as they are. A piece must not be kept.
	Data func(p []byte)

	// Element is called at the end of each element.
	Element func()

	depth    int
	begun    bool // the text has begun
	list     bool // and is a list
	done     bool // and has ended
	some     bool // the element has a byte that is not space
	comma    bool // must come before the next element
	inString bool
	escaped  bool
}

// Write reads the next bytes of the text. It keeps nothing of p.
func (d *Decoder) Write(p []byte) {
	start := 0 // of the bytes that have not been handed on
	for i := 0; i < len(p) && !d.done; i++ {
		if d.inString {
			i += d.readString(p[i:]) - 1
			continue
		}
		switch c := p[i]; c {
		case ' ', '\t', '\r', '\n':
			continue
		case '"':
			d.inString = true
		case '{', '[':
			d.depth++
			if !d.begun && c == '[' {
				d.begun, d.list, start = true, true, i+1
				continue
			}
		case '}', ']', ',':
			if ends, after := d.leave(c); ends {
				d.some = d.some || after > 0
				d.data(p[start : i+after])
				d.end()
				start = i + 1
				continue
			}
		}
		d.begun, d.some = true, true
	}
	if !d.done {
		d.data(p[min(start, len(p)):])
	}
}

// leave goes on after a closing bracket or a comma, and reports whether an
// element ends there, of which the last after bytes are.
func (d *Decoder) leave(c byte) (ends bool, after int) {
	if c == ',' {
		d.comma = d.comma && d.depth != 1
		return d.list && d.depth == 1, 0
	}
	if d.depth > 0 {
		d.depth--
		d.done = d.depth == 0
	}
	switch {
	case d.done && d.list: // the bracket is not a part of an element
		return true, 0
	case d.list && d.depth == 1: // an object, or a list, which no comma must end
		d.comma = true
		return true, 1
	}
	return d.done, 1
}

// readString reads bytes of a string and returns how many.
func (d *Decoder) readString(p []byte) int {
	if d.escaped {
		d.escaped = false
		return 1
	}
	n := bytes.IndexAny(p, `"\`)
	if n < 0 {
		return len(p)
	}
	d.escaped = p[n] == '\\'
	d.inString = d.escaped
	return n + 1
}

func (d *Decoder) data(p []byte) {
	if len(p) > 0 {
		d.Data(p)
	}
}

// end ends an element, if there is one.
func (d *Decoder) end() {
	if d.some {
		d.Element()
	}
	d.some = false
}

// Next returns what must stand before one more element, if one may come now.
// No element may come inside another one, in what is no list, or after its end.
func (d *Decoder) Next() (before string, ok bool) {
	switch {
	case !d.begun:
		return "[", true
	case !d.list || d.done || d.depth != 1 || d.inString:
		return "", false
	case d.some: // a number or a word, which may go on
		return "", false
	case d.comma:
		return ",", true
	}
	return "", true
}

// Close ends the text: an element that was cut counts, too.
func (d *Decoder) Close() { d.end() }

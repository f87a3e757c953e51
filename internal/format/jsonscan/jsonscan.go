// Package jsonscan picks members out of a JSON text that arrives in pieces.
//
// It holds the values that it was asked for, within a bound, and nothing else,
// so a text of any size costs no memory. It does not validate: of a text that
// is not JSON it finds nothing, or something, but always in linear time.
package jsonscan

import (
	"bytes"
)

// A Path names a member: its own name, after those of the objects that it
// stands in. It has at most three names.
type Path []string

// maxDepth is how many names a path may have.
const maxDepth = 3

// maxKey bounds what is kept of a member's name.
const maxKey = 64

// A Scanner picks members out of one JSON text after the other.
type Scanner struct {
	paths []Path
	limit int
	found []Value

	depth    int
	isObject [maxDepth + 1]bool
	// reach[d] has a bit for each path whose first d names lead to where the
	// scanner is; reach[0] has all.
	reach [maxDepth + 1]uint64

	inString bool
	escaped  bool
	isKey    bool // the string is a member's name
	wantKey  bool // the next string is a member's name
	key      []byte
	keep     int // index of the path whose value is being kept, or -1
	keepAt   int // the depth at which that value stands
	done     bool
}

// A Value is the raw text of a member's value.
type Value struct {
	// Raw is the text, without space around it, or nil if the member is absent
	// or its value too long.
	Raw []byte

	// TooLong says that the value was longer than the scanner's limit.
	TooLong bool
}

// New returns a Scanner for the members at the given paths: at most 64, of which
// none leads to another. It keeps paths, and at most limit bytes of each value.
func New(limit int, paths ...Path) *Scanner {
	s := &Scanner{limit: limit, paths: paths, found: make([]Value, len(paths))}
	s.Reset()
	return s
}

// Reset forgets all and makes s ready for another text.
func (s *Scanner) Reset() {
	for i := range s.found {
		s.found[i] = Value{Raw: s.found[i].Raw[:0]}
	}
	s.depth, s.reach = 0, [maxDepth + 1]uint64{1<<len(s.paths) - 1}
	s.inString, s.escaped, s.isKey, s.wantKey = false, false, false, false
	s.keep, s.done = -1, false
}

// Complete reports whether the text, an object or an array, has ended.
func (s *Scanner) Complete() bool { return s.done }

// Inside reports whether the text, an object or an array, has begun and not
// ended.
func (s *Scanner) Inside() bool { return s.depth > 0 }

// Value returns the value of the path of index i. Of a member that is given
// twice it is the first one, so that a value does not change once it is there.
// It is valid until the next call of Reset.
func (s *Scanner) Value(i int) Value {
	v := s.found[i]
	if i == s.keep {
		return Value{} // not yet complete
	}
	if v.Raw = bytes.TrimSpace(v.Raw); len(v.Raw) == 0 || v.TooLong {
		v.Raw = nil
	}
	return v
}

// Write reads the next bytes of the text. What follows its end is ignored.
func (s *Scanner) Write(p []byte) {
	start := 0 // of the bytes of p that are to be kept
	for i := 0; i < len(p) && !s.done; {
		if s.inString {
			i += s.readString(p[i:])
			continue
		}
		switch c := p[i]; c {
		case '"':
			s.inString, s.isKey, s.wantKey = true, s.wantKey, false
			s.key = s.key[:0]
		case '{', '[':
			s.open(c == '{')
		case '}', ']', ',':
			if s.keep >= 0 && s.depth == s.keepAt {
				s.take(p[start:i])
				s.keep = -1
			}
			s.next(c)
		case ':':
			if s.begin() {
				start = i + 1
			}
		}
		i++
	}
	if s.keep >= 0 {
		s.take(p[min(start, len(p)):])
	}
}

// readString reads bytes of a string and returns how many. Escapes stay as they
// are, so an escaped name is none that is looked for.
func (s *Scanner) readString(p []byte) int {
	if s.escaped {
		s.escaped = false
		s.addKey(p[:1])
		return 1
	}
	n := bytes.IndexAny(p, `"\`)
	if n < 0 {
		s.addKey(p)
		return len(p)
	}
	s.addKey(p[:n])
	if s.escaped = p[n] == '\\'; s.escaped {
		s.addKey(p[n : n+1])
	} else {
		s.inString = false
	}
	return n + 1
}

func (s *Scanner) addKey(p []byte) {
	if s.isKey {
		s.key = append(s.key, p[:min(len(p), maxKey-len(s.key))]...)
	}
}

// open enters an object or an array.
func (s *Scanner) open(object bool) {
	s.depth++
	if s.wantKey = false; s.depth <= maxDepth {
		s.isObject[s.depth], s.reach[s.depth] = object, 0
		s.wantKey = object
	}
}

// next leaves an object or an array, or goes on to its next member.
func (s *Scanner) next(c byte) {
	if c != ',' && s.depth > 0 {
		s.depth--
		s.done = s.depth == 0
	}
	s.wantKey = c == ',' && s.depth <= maxDepth && s.isObject[s.depth]
}

// begin goes on from a member's name to its value, and reports whether the
// value is one to keep.
func (s *Scanner) begin() bool {
	d := s.depth
	if d < 1 || d > maxDepth || !s.isObject[d] {
		return false
	}
	s.reach[d] = 0
	found := -1
	for i, path := range s.paths {
		if s.reach[d-1]&(1<<i) == 0 || len(path) < d || path[d-1] != string(s.key) {
			continue
		}
		s.reach[d] |= 1 << i
		if len(path) == d {
			found = i
		}
	}
	if found < 0 || s.keep >= 0 || len(s.found[found].Raw) > 0 || s.found[found].TooLong {
		return false
	}
	s.keep, s.keepAt = found, d
	return true
}

// take keeps p as a part of the value that is being kept.
func (s *Scanner) take(p []byte) {
	v := &s.found[s.keep]
	if v.TooLong = v.TooLong || len(v.Raw)+len(p) > s.limit; v.TooLong {
		return
	}
	v.Raw = append(v.Raw, p...)
}

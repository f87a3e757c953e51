package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SourceMap tells where each part of a configuration was written: it maps JSON
// pointers (RFC 6901), relative to the object that holds the map, to
// "file:line" of the Caddyfile. A part that is not listed was written where
// the part around it was.
type SourceMap map[string]string

// at returns the "file:line" of the part that pointer names, or "" if it is
// not known.
func (m SourceMap) at(pointer string) string {
	for {
		if place, ok := m[pointer]; ok {
			return place
		}
		end := strings.LastIndexByte(pointer, '/')
		if end < 0 {
			return ""
		}
		pointer = pointer[:end]
	}
}

// locate puts the place of the part that pointer names before err, if it is
// known.
func (m SourceMap) locate(pointer string, err error) error {
	if place := m.at(pointer); place != "" {
		return fmt.Errorf("%s: %w", place, err)
	}
	return err
}

// pointerEscaper escapes one token of a JSON pointer.
var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// problems gathers everything that is wrong with a configuration.
type problems struct {
	source SourceMap
	found  []problem
}

type problem struct {
	pointer string
	err     error
}

// root returns the reporter for the configuration itself.
func (p *problems) root() reporter { return reporter{problems: p} }

// err returns all problems in the order of the file, or nil.
func (p *problems) err() error {
	slices.SortStableFunc(p.found, func(a, b problem) int {
		return comparePlaces(p.source.at(a.pointer), p.source.at(b.pointer))
	})
	errs := make([]error, len(p.found))
	for i, f := range p.found {
		errs[i] = p.source.locate(f.pointer, f.err)
	}
	return errors.Join(errs...)
}

// comparePlaces compares two "file:line" by file, then by line.
func comparePlaces(a, b string) int {
	aFile, aLine := splitPlace(a)
	bFile, bLine := splitPlace(b)
	return cmp.Or(cmp.Compare(aFile, bFile), cmp.Compare(aLine, bLine))
}

func splitPlace(place string) (file string, line int) {
	i := strings.LastIndexByte(place, ':')
	if i < 0 {
		return place, 0
	}
	line, _ = strconv.Atoi(place[i+1:])
	return place[:i], line
}

// A reporter reports problems of one part of a configuration.
type reporter struct {
	problems *problems
	pointer  string
	subject  string
}

// in returns the reporter for a part within r's, with its JSON pointer
// relative to r's and its name in the operator's words.
func (r reporter) in(pointer, subject string) reporter {
	r.pointer += "/" + pointer
	if r.subject != "" {
		subject = r.subject + ": " + subject
	}
	r.subject = subject
	return r
}

// item is like in for the element i of the list of the given field.
func (r reporter) item(field string, i int, subject string) reporter {
	return r.in(field+"/"+strconv.Itoa(i), subject)
}

// errorf reports a problem. The message says what to do about it.
func (r reporter) errorf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	if r.subject != "" {
		err = fmt.Errorf("%s: %w", r.subject, err)
	}
	r.problems.found = append(r.problems.found, problem{r.pointer, err})
}

package caddymodule

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A charset is what names of one sort may consist of.
type charset struct {
	pattern *regexp.Regexp
	words   string
}

var (
	// plainName is for names that become parts of a path-like ID.
	plainName = charset{
		regexp.MustCompile(`^[A-Za-z0-9._:-]{1,256}$`),
		"letters, digits and . _ : -",
	}
	// accountName is one plain name, or one within a provider.
	accountName = charset{
		regexp.MustCompile(`^[A-Za-z0-9._:-]{1,256}(/[A-Za-z0-9._:-]{1,256})?$`),
		"letters, digits and . _ : - /",
	}
	// wideName is for names that other people choose: models and callers.
	wideName = charset{
		regexp.MustCompile(`^[A-Za-z0-9._:/@+-]{1,256}$`),
		"letters, digits and . _ : - / @ +",
	}
)

// named returns kind and name as an operator would say them.
func named(kind, name string) string {
	if wideName.pattern.MatchString(name) {
		return kind + " " + name
	}
	return kind + " " + strconv.Quote(name)
}

// checkName reports a name that is missing or has other characters than c's.
func checkName(r reporter, c charset, name string) {
	switch {
	case name == "":
		r.errorf("the name is missing")
	case !c.pattern.MatchString(name):
		r.errorf("a name consists of %s, and at most 256 of them", c.words)
	}
}

// checkUnique reports names that occur twice in the list of the given field.
func checkUnique(r reporter, field, kind string, names []string) {
	for i, name := range names {
		first := slices.Index(names, name)
		if name != "" && first < i {
			r.item(field, i, named(kind, name)).
				errorf("listed before%s; rename or remove one", r.seen(field, first))
		}
	}
}

// seen says where the element i of the given field was written, if known.
func (r reporter) seen(field string, i int) string {
	pointer := r.pointer + "/" + field + "/" + strconv.Itoa(i)
	if place := r.problems.source.at(pointer); place != "" {
		return " at " + place
	}
	return ""
}

// hint tells how to mend name, which is none of known.
func hint(name string, known []string) string {
	if len(known) == 0 {
		return "none is declared"
	}
	best := slices.MinFunc(known, func(a, b string) int {
		return editDistance(name, a) - editDistance(name, b)
	})
	if editDistance(name, best) <= max(1, len(name)/2) {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "use one of " + strings.Join(known, ", ")
}

// editDistance counts the bytes to insert, delete, replace, or swap with their
// neighbour to turn a into b.
func editDistance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

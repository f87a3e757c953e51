package usher_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	faultID   = `B[0-9]{2,3}`
	faultLine = regexp.MustCompile(`(?m)^\| (` + faultID + `) \|.*\| (.*) \|$`)
	faultTest = regexp.MustCompile("`([a-z0-9/]+)\\.(Test[A-Za-z0-9_]+)(?:/([^`]+))?`")

	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	// A row of a table that is about a fault begins with its ID, or ends with
	// it in brackets.
	testRow  = regexp.MustCompile(`"(` + faultID + ` [^"\n]+|[^"\n]+ \(` + faultID + `\))"[:,] `)
	anyFault = regexp.MustCompile(`(?:\b|_)(` + faultID + `)(?:\b|_)`)
)

// A faultRef names a test, or a row of a test.
type faultRef struct{ folder, function, row string }

// The page docs/faults.md names a test for each fault, and knows all tests that
// have the ID of one in their name.
func TestFaultsHaveTheirTests(t *testing.T) {
	t.Parallel()
	functions, rows := faultTests(t)
	page, err := os.ReadFile("docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool) // functions and rows, each with the ID
	for _, line := range faultLine.FindAllStringSubmatch(string(page), -1) {
		id := line[1]
		refs := faultTest.FindAllStringSubmatch(line[2], -1)
		if len(refs) == 0 && !strings.Contains(line[0], "does not apply") {
			t.Errorf("%s has no test, and does not say why", id)
		}
		for _, m := range refs {
			ref := faultRef{m[1], m[2], m[3]}
			name := ref.function
			if ref.row != "" {
				name = ref.row
			}
			if !slices.Contains(idsIn(name), id) {
				t.Errorf("%s: the name of %s does not have it", id, m[0])
			}
			if !functions[ref.folder+"."+ref.function] {
				t.Errorf("%s: there is no test %s.%s", id, ref.folder, ref.function)
			}
			if ref.row != "" && !rows[ref.row] {
				t.Errorf("%s: no test has the row %q", id, ref.row)
			}
			known[id+" "+ref.folder+"."+ref.function], known[id+" "+ref.row] = true, true
		}
	}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(functions)), slices.Sorted(maps.Keys(rows))) {
		for _, id := range idsIn(name) {
			if !known[id+" "+name] {
				t.Errorf("docs/faults.md does not name %q for %s", name, id)
			}
		}
	}
}

// idsIn returns the IDs in the name of a test or of a row.
func idsIn(name string) (ids []string) {
	for rest := name; ; {
		at := anyFault.FindStringSubmatchIndex(rest)
		if at == nil {
			return ids
		}
		ids = append(ids, rest[at[2]:at[3]])
		rest = rest[at[3]:] // the underscore between two belongs to both
	}
}

// faultTests returns all tests as "folder.TestName", and all rows with an ID.
func faultTests(t *testing.T) (functions, rows map[string]bool) {
	t.Helper()
	functions, rows = make(map[string]bool), make(map[string]bool)
	for _, f := range files(t) {
		text, err := fs.ReadFile(os.DirFS("."), filepath.ToSlash(f.path))
		if err != nil {
			t.Fatal(err)
		}
		if f.test {
			for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
				functions[f.folder+"."+m[1]] = true
			}
		}
		for _, m := range testRow.FindAllStringSubmatch(string(text), -1) {
			rows[m[1]] = true
		}
	}
	return functions, rows
}

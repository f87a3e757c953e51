package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/freeport"
)

// A docBlock is a fenced block of a document.
type docBlock struct {
	kind string // the first word behind the fence
	file string // the second word, if there is one
	text string
}

func docBlocks(t *testing.T, path string) []docBlock {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []docBlock
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]*) ?([^\n]*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, docBlock{m[1], m[2], m[3]})
	}
	return blocks
}

// numbers are what differs between two runs of a command.
var numbers = regexp.MustCompile(`[0-9]+(\.[0-9]+)?(µs|ms|s)?`)

// plain returns a line with what differs between runs, and its layout, taken
// out of it.
func plain(line string) string {
	return strings.Join(strings.Fields(numbers.ReplaceAllString(line, "0")), " ")
}

// The page is followed literally, from an empty folder: commands are typed,
// files are written, and what the page shows of their output must be there. The
// module is this checkout, served as its latest release; the ports, which
// others use on this machine, are other ones.
func TestWritingAPolicyWorksAsPrinted(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	bin := filepath.Join(filepath.Dir(a.dir), "bin")
	if err := os.Remove(filepath.Join(bin, "usher")); err != nil { // the page gets one
		t.Fatal(err)
	}
	a.env = append(a.env, "GOBIN="+bin, fmt.Sprintf("CADDY_ADMIN=127.0.0.1:%d", freeport.ForTest(t)))
	ports := strings.NewReplacer("8080", fmt.Sprint(freeport.ForTest(t)), "9001", fmt.Sprint(freeport.ForTest(t)))
	t.Cleanup(func() { _, _ = a.try("usher stop 2>/dev/null") }) // it is stopped already if all is well

	var output string
	ran := 0
	for _, b := range docBlocks(t, "docs/writing-a-policy.md") {
		text := ports.Replace(b.text)
		switch {
		case b.kind == "sh":
			// The next block goes on where this one ends.
			output = a.do(t, text+"\npwd")
			lines := strings.Split(strings.TrimSpace(output), "\n")
			a.dir = lines[len(lines)-1]
			ran++
		case b.file != "":
			if err := os.WriteFile(filepath.Join(a.dir, b.file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case b.kind == "text":
			var got []string
			for line := range strings.SplitSeq(output, "\n") {
				got = append(got, plain(line))
			}
			for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
				if !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, plain(line)) }) {
					t.Errorf("the page shows %q, which is not in:\n%s", line, output)
				}
			}
		}
	}
	if ran != 6 {
		t.Errorf("%d blocks of commands were found, want 6", ran)
	}
}

package held_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/usherproxy/usher/internal/held"
)

// hold holds text, in a file if that is longer than inMemory.
func hold(t *testing.T, text string, inMemory int) *held.Body {
	t.Helper()
	b, err := held.Read(iotest.OneByteReader(strings.NewReader(text)), int64(len(text)), inMemory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestBodyIsReadAsOftenAsIsNeeded(t *testing.T) {
	t.Parallel()
	const text = "0123456789"
	for name, inMemory := range map[string]int{"in memory": 10, "in a file": 9, "all in a file": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := hold(t, text, inMemory)
			var readers sync.WaitGroup
			for range 4 {
				readers.Go(func() {
					for _, c := range []struct {
						edits []held.Edit
						want  string
					}{
						{nil, text},
						{[]held.Edit{{Start: 0, End: 3, Text: []byte("abcd")}}, "abcd3456789"},
						{[]held.Edit{{Start: 1, End: 1, Text: []byte("A")}, {Start: 1, End: 1, Text: []byte("B")}, {Start: 9, End: 10}}, "0AB12345678"},
					} {
						r, size := b.Open(c.edits)
						if got, err := io.ReadAll(r); err != nil || string(got) != c.want || size != int64(len(c.want)) {
							t.Errorf("%q (%d bytes, %v), want %q", got, size, err, c.want)
						}
					}
				})
			}
			readers.Wait()
			whole, err := b.Bytes()
			if err != nil || string(whole) != text || b.Size() != int64(len(text)) {
				t.Errorf("%q, %v", whole, err)
			}
			fault := errors.New("fault")
			if err := b.View(func(p []byte) error {
				if string(p) != text {
					t.Errorf("view of %q", p)
				}
				return fault
			}); !errors.Is(err, fault) {
				t.Errorf("View returned %v", err)
			}
		})
	}
}

func TestFileHasNoName(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	b := hold(t, "text", 1)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	r, _ := b.Open(nil)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a reader of a closed body: %v", err)
	}
}

func TestErrorsTellWhoseTheyAre(t *testing.T) {
	fault := errors.New("fault")
	for _, inMemory := range []int{1, 100} {
		_, err := held.Read(io.MultiReader(strings.NewReader("text"), iotest.ErrReader(fault)), -1, inMemory)
		var ours *held.HoldError
		if !errors.Is(err, fault) || errors.As(err, &ours) {
			t.Errorf("an error of the reader: %v", err)
		}
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	_, err := held.Read(strings.NewReader("text"), 4, 1)
	var ours *held.HoldError
	if !errors.As(err, &ours) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an error of the file: %v", err)
	}
}

// A disk that fails ends the request, and not the process.
func TestFaultOfTheDiskIsAnError(t *testing.T) {
	b := hold(t, strings.Repeat("x", 100_000), 1)
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	cut := false
	for _, fd := range open {
		if name, err := os.Readlink(fd); err == nil && strings.Contains(name, "usher-body-") {
			if err := os.Truncate(fd, 0); err != nil {
				t.Fatal(err)
			}
			cut = true
		}
	}
	err = b.View(func(p []byte) error {
		if p[len(p)-1] != 'x' {
			t.Error("the end is gone")
		}
		return nil
	})
	if _, ours := errors.AsType[*held.HoldError](err); ours != cut {
		t.Errorf("cut %v: %v", cut, err)
	}
	defer func() {
		if recover() != "see" {
			t.Error("another panic is lost")
		}
	}()
	_ = hold(t, "text", 1).View(func([]byte) error { panic("see") })
}

// FuzzOpen holds that edits change what they name, and nothing else.
func FuzzOpen(f *testing.F) {
	f.Add([]byte("0123456789"), uint64(1), 4)
	f.Fuzz(func(t *testing.T, text []byte, seed uint64, inMemory int) {
		random := rand.New(rand.NewPCG(seed, 0))
		places := make([]int, 2*random.IntN(4))
		for i := range places {
			places[i] = random.IntN(len(text) + 1)
		}
		slices.Sort(places)
		var edits []held.Edit
		var want []byte
		at := 0
		for i := 0; i < len(places); i += 2 {
			e := held.Edit{Start: int64(places[i]), End: int64(places[i+1]), Text: []byte(strings.Repeat("x", random.IntN(5)))}
			edits = append(edits, e)
			want = append(append(want, text[at:e.Start]...), e.Text...)
			at = places[i+1]
		}
		want = append(want, text[at:]...)
		b, err := held.Read(bytes.NewReader(text), int64(len(text)), min(max(inMemory, 0), len(text)))
		if err != nil {
			t.Fatal(err)
		}
		r, size := b.Open(edits)
		if got := readAll(t, r); got != string(want) || size != int64(len(want)) {
			t.Fatalf("%q of %d bytes, want %q", got, size, want)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

package format_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/format"
)

// FuzzValid holds that the fast check and that of the standard library agree,
// however deep a text is.
func FuzzValid(f *testing.F) {
	for _, text := range []string{
		"", "{}", " [1,2.5e-3,-0,null,true,false]\n", `{"a":"\u00e9\ud800"}`, "\"\x7f\xff\"", "\"\t\"", "\xef\xbb\xbf{}", "01", "1.", "1e", "tru", "[1,]", `{"a":1,}`, "{}{}", `"\`,
	} {
		f.Add([]byte(text), uint16(0))
	}
	f.Add([]byte("1"), uint16(format.MaxBrackets))
	f.Add([]byte("1"), uint16(format.MaxBrackets+1))
	f.Fuzz(func(t *testing.T, text []byte, depth uint16) {
		deep := strings.Repeat("[", int(depth)) + string(text) + strings.Repeat("]", int(depth))
		if got, want := format.Valid([]byte(deep)), json.Valid([]byte(deep)); got != want {
			t.Errorf("%d brackets around %q: valid is %t, want %t", depth, text, got, want)
		}
	})
}

package jsonscan_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/usherproxy/usher/internal/format/jsonscan"
)

var paths = []jsonscan.Path{{"usage"}, {"response", "usage"}, {"error"}, {"a", "b", "c"}}

// scan returns what a scanner finds in the pieces, and whether the text ended.
func scan(limit int, pieces ...string) (string, bool) {
	s := jsonscan.New(limit, paths...)
	s.Write([]byte(`{"usage":{"from":"another text"},"a":[`))
	s.Reset()
	for _, p := range pieces {
		s.Write([]byte(p))
	}
	var found []string
	for i, p := range paths {
		switch v := s.Value(i); {
		case v.TooLong:
			found = append(found, strings.Join(p, ".")+" too long")
		case v.Raw != nil:
			found = append(found, fmt.Sprintf("%s=%s", strings.Join(p, "."), v.Raw))
		}
	}
	return strings.Join(found, " "), s.Complete()
}

func TestScannerKnowsWhetherATextIsOpen(t *testing.T) {
	t.Parallel()
	s := jsonscan.New(9, paths...)
	for _, c := range []struct {
		text string
		want bool
	}{{" ", false}, {`{"a":"{`, true}, {`"`, true}, {"}", false}, {"{", false}} {
		if s.Write([]byte(c.text)); s.Inside() != c.want {
			t.Errorf("after %q: inside %v, want %v", c.text, s.Inside(), c.want)
		}
	}
}

func TestScannerFindsMembers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, want string
		complete   bool
	}{
		"a number":              {`{"usage":5}`, "usage=5", true},
		"an object":             {`{"id":"x","usage":{"a":[1,{"b":2}]},"z":1}`, `usage={"a":[1,{"b":2}]}`, true},
		"a string":              {`{"error":"a \"quoted\", }word\\"}`, `error="a \"quoted\", }word\\"`, true},
		"null":                  {`{"usage":null}`, "usage=null", true},
		"space":                 {" {\n\"usage\" :\t 1 \n, \"x\": 2 } ", "usage=1", true},
		"two levels":            {`{"response":{"id":1,"usage":{"n":1}}}`, `response.usage={"n":1}`, true},
		"three levels":          {`{"a":{"b":{"c":true}}}`, "a.b.c=true", true},
		"the first one holds":   {`{"usage":1,"usage":2}`, "usage=1", true},
		"also if too long":      {`{"usage":"` + strings.Repeat("x", 99) + `","usage":2}`, "usage too long", true},
		"several":               {`{"error":{},"usage":[],"response":{"usage":0}}`, "usage=[] response.usage=0 error={}", true},
		"not a deeper one":      {`{"x":{"usage":1},"y":[{"usage":2}]}`, "", true},
		"not in an array":       {`{"response":[{"usage":1}]}`, "", true},
		"not an array":          {`[{"usage":1}]`, "", true},
		"not a value":           {`{"x":"usage","y":["usage",":",1]}`, "", true},
		"not a longer name":     {`{"usage2":1,"usag":2,"Usage":3}`, "", true},
		"not an escaped name":   {`{"us\u0061ge":1}`, "", true},
		"braces in a string":    {`{"x":"}{][,:\"usage\":1","usage":2}`, "usage=2", true},
		"backslashes":           {`{"x":"\\","usage":2}`, "usage=2", true},
		"after a deep value":    {`{"x":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `,"usage":1}`, "usage=1", true},
		"after the end":         {`{"usage":1}{"usage":2}`, "usage=1", true},
		"too long":              {`{"usage":"` + strings.Repeat("x", 99) + `","error":1}`, "usage too long error=1", true},
		"an unfinished value":   {`{"error":1,"usage":{"a":1}`, "error=1", false},
		"an unfinished text":    {`{"usage":1,`, "usage=1", false},
		"no JSON":               {`}]:,"x" hello`, "", false},
		"nothing":               {``, "", false},
		"an object of no space": {`{}`, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range len(c.text) + 1 {
				got, complete := scan(64, c.text[:i], c.text[i:])
				if got != c.want || complete != c.complete {
					t.Fatalf("split at %d: got %s (complete %v), want %s (complete %v)", i, got, complete, c.want, c.complete)
				}
			}
		})
	}
}

// FuzzScanner holds that the members are those that gjson finds, at
// any split.
func FuzzScanner(f *testing.F) {
	f.Add(`{"usage":{"a":[1,"}"]},"response":{"usage":null},"a":{"b":{"c":1}},"error":"x"}`, uint8(9))
	f.Add(`{"a":{"b":{"c":{"c":2}}},"a":{"b":[]}}`, uint8(1))
	f.Fuzz(func(t *testing.T, text string, at uint8) {
		i := int(at) % (len(text) + 1)
		got, _ := scan(1<<20, text[:i], text[i:])
		whole, complete := scan(1<<20, text)
		if got != whole {
			t.Fatalf("%q: split at %d %s, whole %s", text, i, got, whole)
		}
		if strings.Contains(text, `\u`) || !json.Valid([]byte(text)) {
			return
		}
		if want := strings.ContainsAny(strings.TrimSpace(text)[:1], "{["); complete != want {
			t.Fatalf("%q: Complete() = %v, want %v", text, complete, want)
		}
		for _, name := range []string{`"response"`, `"a"`, `"b"`} {
			if strings.Count(text, name) > 1 {
				return // a path through a member that is given twice has no one meaning
			}
		}
		if want := reference(text); whole != want {
			t.Fatalf("%q:\n got %s\nwant %s", text, whole, want)
		}
	})
}

// reference finds the members with gjson.
func reference(text string) string {
	var out []string
	for _, path := range paths {
		name := strings.Join(path, ".")
		if v := gjson.Get(text, name); v.Exists() {
			out = append(out, fmt.Sprintf("%s=%s", name, v.Raw))
		}
	}
	return strings.Join(out, " ")
}

func BenchmarkScanner(b *testing.B) {
	for name, text := range map[string]string{
		"chunk":      `{"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}],"usage":null}`,
		"image 1MiB": `{"data":[{"b64_json":"` + strings.Repeat("QUJD", 1<<18) + `"}],"usage":{"input_tokens":5}}`,
		"floats":     `{"data":[{"embedding":[` + strings.Repeat("-0.01234567,", 1<<16) + `0]}],"usage":{"prompt_tokens":5}}`,
	} {
		b.Run(name, func(b *testing.B) {
			s := jsonscan.New(1<<14, jsonscan.Path{"usage"}, jsonscan.Path{"response", "usage"}, jsonscan.Path{"error"}, jsonscan.Path{"choices"})
			p := []byte(text)
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				s.Reset()
				s.Write(p)
			}
		})
	}
}

func ExampleScanner() {
	s := jsonscan.New(1024, jsonscan.Path{"usage"})
	s.Write([]byte(`{"data":[0.1,0.2],"usa`))
	s.Write([]byte(`ge":{"total_tokens":3}}`))
	fmt.Printf("%s %v\n", s.Value(0).Raw, s.Complete())
	// Output: {"total_tokens":3} true
}

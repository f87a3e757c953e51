package jsonlist_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/format/jsonlist"
)

// split returns the elements of the text that the pieces make, without space
// around them.
func split(pieces ...string) []string {
	elements, element := []string{}, ""
	d := jsonlist.Decoder{
		Data: func(p []byte) { element += string(p) },
		Element: func() {
			elements = append(elements, strings.TrimSpace(element))
			element = ""
		},
	}
	for _, p := range pieces {
		d.Write([]byte(p))
	}
	d.Close()
	return elements
}

// letters cuts a text into single bytes.
func letters(text string) []string { return strings.Split(text, "") }

func TestDecoderFindsElements(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":            {"", []string{}},
		"space":              {" \r\n\t", []string{}},
		"an empty list":      {" [ ] ", []string{}},
		"one":                {`[{"a":1}]`, []string{`{"a":1}`}},
		"several":            {"[{\"a\":[1,2]}\n,\r\n {\"b\":{}} ,3]\n", []string{`{"a":[1,2]}`, `{"b":{}}`, "3"}},
		"brackets in text":   {`["[,]{}\"],", {"a\\":"]"}]`, []string{`"[,]{}\"],"`, `{"a\\":"]"}`}},
		"lists":              {`[[1],[],[[2]]]`, []string{"[1]", "[]", "[[2]]"}},
		"an object":          {` {"a":[1,{}]} `, []string{`{"a":[1,{}]}`}},
		"a number":           {`5`, []string{`5`}},
		"a word":             {`"a,b]"`, []string{`"a,b]"`}},
		"what follows":       {`[1]] [2],3`, []string{"1"}},
		"what follows more":  {`{} {}`, []string{"{}"}},
		"a cut":              {`[{"a":1},{"b":`, []string{`{"a":1}`, `{"b":`}},
		"a cut after all":    {`[{"a":1},`, []string{`{"a":1}`}},
		"a cut in a word":    {`[1,"a\`, []string{"1", `"a\`}},
		"too many brackets":  {`}]1`, []string{`}]1`}},
		"commas":             {`[1,,2,]`, []string{"1", "2"}},
		"a number and cut":   {`[12`, []string{"12"}},
		"characters":         {`["北",{"é":1}]`, []string{`"北"`, `{"é":1}`}},
		"no list after text": {`1[2]`, []string{`1[2]`}},
	} {
		if got := split(c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if got := split(letters(c.text)...); !slices.Equal(got, c.want) {
			t.Errorf("%s, in pieces: got %q, want %q", name, got, c.want)
		}
	}
}

// An element is known as soon as it is whole, and what is added after it makes
// a list that is whole.
func TestListCanBeEndedAfterEachElement(t *testing.T) {
	t.Parallel()
	const end = `{"end":1}`
	text := "[ {\"a\":[1,\"]\"]}\n,\r\n {\"b\":{}} , 3 ,\"x\"] "
	places := 0
	for i := range len(text) + 1 {
		d := jsonlist.Decoder{Data: func([]byte) {}, Element: func() {}}
		d.Write([]byte(text[:i]))
		before, ok := d.Next()
		if !ok {
			continue
		}
		places++
		whole := text[:i] + before + end + "]"
		if !json.Valid([]byte(whole)) {
			t.Errorf("%q is not valid", whole)
		}
	}
	if places < 10 {
		t.Errorf("an element may come at %d places only", places)
	}
	known := 0
	d := jsonlist.Decoder{Data: func([]byte) {}, Element: func() { known++ }}
	if d.Write([]byte(`[{"a":1}`)); known != 1 {
		t.Errorf("%d elements are known, want 1", known)
	}
}

// FuzzDecoder holds that the elements do not depend on the split, and that
// those of a list are those that encoding/json finds.
func FuzzDecoder(f *testing.F) {
	f.Add(`[{"a":[1,"]"]},2 , "\\\""]`, 3)
	f.Add(`{"a":1}`, 1)
	f.Add("[1,]\n", 2)
	f.Fuzz(func(t *testing.T, text string, at int) {
		at = min(max(at, 0), len(text))
		got := split(text)
		if cut := split(text[:at], text[at:]); !slices.Equal(cut, got) {
			t.Fatalf("cut at %d: %q, whole %q", at, cut, got)
		}
		var want []json.RawMessage
		if json.Unmarshal([]byte(text), &want) != nil || want == nil {
			return
		}
		if len(got) != len(want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		for i := range want {
			if strings.TrimSpace(string(want[i])) != got[i] {
				t.Fatalf("element %d: got %q, want %q", i, got[i], want[i])
			}
		}
	})
}

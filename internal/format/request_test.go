package format_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/internal/held"
)

func TestScanReadsWhatMatters(t *testing.T) {
	t.Parallel()
	chat, responses := "/v1/chat/completions", "/v1/responses"
	for name, c := range map[string]struct {
		path, body string
		want       format.Body
	}{
		"the model":                        {chat, `{"model":"m1"}`, format.Body{Model: "m1"}},
		"the model at the end":             {chat, `{"messages":[{"model":"no","content":"\"model\":\"no\""}],"model":"m1"}`, format.Body{Model: "m1"}},
		"space":                            {chat, " {\n \"model\" :\t\"m1\" }\r\n", format.Body{Model: "m1"}},
		"escapes":                          {chat, `{"mod\u0065l":"\u006d1\/x"}`, format.Body{Model: "m1/x"}},
		"characters":                       {chat, `{"model":"模型-1"}`, format.Body{Model: "模型-1"}},
		"a model like a query":             {chat, `{"model":"m?x=1#y"}`, format.Body{Model: "m?x=1#y"}},
		"a stream":                         {chat, `{"model":"m","stream":true}`, format.Body{Model: "m", Stream: true}},
		"no stream":                        {chat, `{"model":"m","stream":false}`, format.Body{Model: "m"}},
		"a stream of another type":         {chat, `{"model":"m","stream":"true"}`, format.Body{Model: "m"}},
		"an operation without streams":     {"/v1/embeddings", `{"model":"m","stream":true}`, format.Body{Model: "m"}},
		"a picture stream":                 {"/v1/images/generations", `{"model":"m","stream":true}`, format.Body{Model: "m", Stream: true}},
		"max_tokens":                       {chat, `{"model":"m","max_tokens":7}`, format.Body{Model: "m", MaxOutputTokens: 7}},
		"max_completion_tokens is better":  {chat, `{"max_completion_tokens":9,"model":"m","max_tokens":7}`, format.Body{Model: "m", MaxOutputTokens: 9}},
		"in any order":                     {chat, `{"max_tokens":7,"model":"m","max_completion_tokens":9}`, format.Body{Model: "m", MaxOutputTokens: 9}},
		"a null is not given":              {chat, `{"model":"m","max_completion_tokens":null,"max_tokens":7}`, format.Body{Model: "m", MaxOutputTokens: 7}},
		"max_output_tokens":                {responses, `{"model":"m","max_output_tokens":11}`, format.Body{Model: "m", MaxOutputTokens: 11}},
		"another operation's limit":        {responses, `{"model":"m","max_tokens":11}`, format.Body{Model: "m"}},
		"a negative limit":                 {chat, `{"model":"m","max_tokens":-7}`, format.Body{Model: "m"}},
		"a huge limit":                     {chat, `{"model":"m","max_tokens":1e300}`, format.Body{Model: "m", MaxOutputTokens: 1<<31 - 1}},
		"the last of two limits":           {chat, `{"model":"m","max_tokens":1,"max_tokens":2}`, format.Body{Model: "m", MaxOutputTokens: 2}},
		"a limit that is no number":        {chat, `{"model":"m","max_tokens":"7"}`, format.Body{Model: "m"}},
		"a deep body within what Go reads": {chat, `{"x":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `,"model":"m"}`, format.Body{Model: "m"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := operation(t, "POST", c.path).Scan(c.path, "", []byte(c.body))
			if err != nil {
				t.Fatalf("Scan(%s): %v", c.body, err)
			}
			if got.Model != c.want.Model || got.Stream != c.want.Stream || got.MaxOutputTokens != c.want.MaxOutputTokens {
				t.Errorf("Scan(%s) = %+v, want %+v", c.body, got, c.want)
			}
		})
	}
}

func TestScanRefusesWhatHasNoModel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, param string }{
		"nothing":               {``, ""},
		"no JSON":               {`model=m`, ""},
		"half an object":        {`{"model":"m"`, ""},
		"two objects":           {`{"model":"m"}{"model":"n"}`, ""},
		"a byte order mark":     {"\uFEFF" + `{"model":"m"}`, ""},
		"a list":                {`[]`, ""},
		"a string":              {`"model"`, ""},
		"null":                  {`null`, ""},
		"no model":              {`{}`, "model"},
		"a deeper model":        {`{"x":{"model":"m"}}`, "model"},
		"a number":              {`{"model":5}`, "model"},
		"a null":                {`{"model":null}`, "model"},
		"an object as model":    {`{"model":{"id":"m"}}`, "model"},
		"an empty model":        {`{"model":""}`, "model"},
		"two models":            {`{"model":"a","model":"b"}`, "model"},
		"an escaped second one": {`{"model":"a","mod\u0065l":"b"}`, "model"},
		"another spelling":      {`{"MODEL":"a"}`, "model"},
		"two spellings":         {`{"model":"a","Model":"b"}`, "model"},
		"a long model":          {`{"model":"` + strings.Repeat("x", 257) + `"}`, "model"},
		"a control character":   {`{"model":"a\nb"}`, "model"},
		"a delete character":    {"{\"model\":\"a\x7f\"}", "model"},
		"no UTF-8":              {"{\"model\":\"a\xff\"}", "model"},
		"a body too deep":       {strings.Repeat("[", 1<<20), ""},
		"an object too deep":    {`{"model":"m","x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := operation(t, "POST", "/v1/chat/completions").Scan(chatPath, "", []byte(c.body))
			var bad *format.BadRequest
			if !errors.As(err, &bad) {
				t.Fatalf("Scan = %v, want a *BadRequest", err)
			}
			if bad.Param != c.param || bad.Message == "" {
				t.Errorf("Scan = %+v, want a message and the param %q", bad, c.param)
			}
		})
	}
}

func TestAffinityStandsForTheSession(t *testing.T) {
	t.Parallel()
	scan := func(path, members string) string {
		t.Helper()
		b, err := operation(t, "POST", path).Scan(path, "", []byte(`{"model":"m",`+members+`}`))
		if err != nil {
			t.Fatal(err)
		}
		return b.Affinity
	}
	chat, responses := "/v1/chat/completions", "/v1/responses"
	key := scan(chat, `"prompt_cache_key":"s1"`)
	if len(key) != 16 || strings.Contains(key, "s1") {
		t.Errorf("Affinity = %q, want a hash of 16 digits", key)
	}
	for name, c := range map[string]struct {
		path, members string
		same          bool
	}{
		"the same key":             {chat, `"prompt_cache_key":"s1"`, true},
		"the key before the user":  {chat, `"user":"u","prompt_cache_key":"s1"`, true},
		"also in the other order":  {chat, `"prompt_cache_key":"s1","user":"u"`, true},
		"the user alone":           {chat, `"user":"s1"`, true},
		"the user if key is empty": {chat, `"prompt_cache_key":"","user":"s1"`, true},
		"a conversation":           {responses, `"conversation":"s1","user":"u"`, true},
		"a conversation's id":      {responses, `"conversation":{"id":"s1"},"user":"u"`, true},
		"another key":              {chat, `"prompt_cache_key":"s2"`, false},
		"another user":             {chat, `"user":"u"`, false},
		"nothing":                  {chat, `"n":1`, false},
	} {
		if got := scan(c.path, c.members); (got == key) != c.same {
			t.Errorf("%s: Affinity = %q, key %q, want same %v", name, got, key, c.same)
		}
	}
	if got := scan(chat, `"user":null`); got != "" {
		t.Errorf("Affinity of none = %q, want none", got)
	}
}

func TestInputTokensAreEstimated(t *testing.T) {
	t.Parallel()
	image := `{"url":"data:image/png;base64,` + strings.Repeat("QUJD", 1<<18) + `"}`
	for name, c := range map[string]struct {
		body     string
		from, to int64
	}{
		"a small body":                {`{"model":"m","x":"y"}`, 7, 7},
		"text":                        {`{"model":"m","x":"` + strings.Repeat("word ", 600) + `"}`, 1000, 1020},
		"an image":                    {`{"model":"m","x":[` + image + `]}`, 1500, 1530},
		"two images":                  {`{"model":"m","x":[` + image + `,` + image + `]}`, 3000, 3040},
		"an image that does not end":  {`{"model":"m","x":"\"data:image/"}`, 10, 1520},
		"other data counts as it is":  {`{"model":"m","x":"data:application/pdf;base64,` + strings.Repeat("QUJD", 300) + `"}`, 400, 420},
		"a remote image counts as is": {`{"model":"m","x":"https://example.com/data:image/png"}`, 15, 25},
	} {
		b, err := operation(t, "POST", "/v1/chat/completions").Scan(chatPath, "", []byte(c.body))
		if err != nil || b.InputTokens < c.from || b.InputTokens > c.to {
			t.Errorf("%s: InputTokens = %d (%v), want %d to %d", name, b.InputTokens, err, c.from, c.to)
		}
	}
}

func TestSpliceChangesOnlyTheModel(t *testing.T) {
	t.Parallel()
	const before = "{ \"seed\":9007199254740993,\"t\":1.0, \"x\":\"<&>\", \"seed\" : 2,\n \"model\" :\t"
	const after = " ,\"unknown\":{\"model\":\"a\"}}\n"
	for _, c := range [][3]string{
		{`"a"`, "b", `"b"`},
		{`"\u0061"`, "gpt-4o-2024-08-06", `"gpt-4o-2024-08-06"`},
		{`"a"`, `say "hi"\`, `"say \"hi\"\\"`},
		{`"a"`, "", `""`},
	} {
		body := []byte(before + c[0] + after)
		b, err := operation(t, "POST", "/v1/chat/completions").Scan(chatPath, "", body)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(spliced(t, b, body, c[1])), before+c[2]+after; got != want {
			t.Errorf("Splice(%q):\n got %s\nwant %s", c[1], got, want)
		}
		if edits := b.Edits("a"); len(edits) > 0 {
			t.Errorf("the same model takes edits: %v", edits)
		}
	}
}

// spliced returns body as it is sent to a candidate.
func spliced(t testing.TB, b format.Body, body []byte, model string) []byte {
	t.Helper()
	h, err := held.Read(bytes.NewReader(body), int64(len(body)), len(body))
	if err != nil {
		t.Fatal(err)
	}
	r, size := h.Open(b.Edits(model))
	out, err := io.ReadAll(r)
	if err != nil || int64(len(out)) != size {
		t.Fatalf("%d bytes of %d: %v", len(out), size, err)
	}
	return out
}

// FuzzScanSplice holds that a body that is accepted has the model that
// encoding/json finds, and that after a splice only the model differs.
func FuzzScanSplice(f *testing.F) {
	f.Add(`{"model":"a","messages":[]}`, "b")
	f.Add(` {"x":{"model":1},"mod\u0065l" : "\ud83d\ude00" , "y":[1.0,"\\"]}`, "\"\\\n<é>")
	f.Add(`{"model":"a","MODEL":"b"}`, "c")
	f.Fuzz(func(t *testing.T, text, model string) {
		body := []byte(text)
		b, err := operation(t, "POST", "/v1/chat/completions").Scan(chatPath, "", body)
		if err != nil {
			var bad *format.BadRequest
			if !errors.As(err, &bad) {
				t.Fatalf("Scan(%q): %v is no *BadRequest", text, err)
			}
			return
		}
		was, now := decode(t, body), decode(t, spliced(t, b, body, model))
		if was["model"] != b.Model {
			t.Fatalf("Scan(%q): model %q, want %q", text, b.Model, was["model"])
		}
		if now["model"] != model && utf8.ValidString(model) {
			t.Fatalf("Splice(%q, %q): model %q", text, model, now["model"])
		}
		delete(was, "model")
		delete(now, "model")
		if !reflect.DeepEqual(now, was) {
			t.Fatalf("Splice(%q, %q): got %v, want %v", text, model, now, was)
		}
	})
}

// decode reads an object with numbers as they are written.
func decode(t *testing.T, body []byte) map[string]any {
	t.Helper()
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&object); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	return object
}

// chatBody returns the body of a chat of about size bytes.
func chatBody(size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":"gpt-4o","stream":true,"max_completion_tokens":512,"messages":[{"role":"system","content":"You help."}`)
	for b.Len() < size-400 {
		fmt.Fprintf(&b, `,{"role":"user","content":"%s\n"}`, strings.Repeat("The quick brown fox jumps over the lazy dog. ", 8))
	}
	b.WriteString(`],"prompt_cache_key":"session-1"}`)
	return b.Bytes()
}

func BenchmarkScan(b *testing.B) {
	for name, size := range map[string]int{"1KiB": 1 << 10, "1MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			op, body := operation(b, "POST", "/v1/chat/completions"), chatBody(size)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := op.Scan("", "", body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSplice(b *testing.B) {
	for name, size := range map[string]int{"1KiB": 1 << 10, "1MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			body := chatBody(size)
			scanned, err := operation(b, "POST", "/v1/chat/completions").Scan(chatPath, "", body)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				spliced(b, scanned, body, "gpt-4o-2024-08-06")
			}
		})
	}
}

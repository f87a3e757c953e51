package format_test

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/usherproxy/usher/internal/format"
)

const usageChunk = "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n"

func TestAskingForUsageChangesOneMember(t *testing.T) {
	t.Parallel()
	const asks = `"stream_options":{"include_usage":true},`
	for _, c := range []struct{ body, want string }{
		{` { "n":1.0,"stream":true,"model":"m"}`, ` {` + asks + ` "n":1.0,"stream":true,"model":"m"}`},
		{`{"model":"m","stream":true,"stream_options":{}}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`},
		{`{"model":"m","stream":true,"stream_options":null}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`},
		{`{"model":"m","stream":true,"stream_options":{ "x":[1]}}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true, "x":[1]}}`},
		{`{"stream_options" : {"x":1,"include_usage" : false} ,"model":"m","stream":true}`, `{"stream_options" : {"x":1,"include_usage" : true} ,"model":"m","stream":true}`},
		{`{"stream_options":{"include_usage":null},"model":"m","stream":true}`, `{"stream_options":{"include_usage":true},"model":"m","stream":true}`},
		{`{"stream_options":{"include_usage":true},"model":"m","stream":true}`, ""},
		{`{"stream_options":{"include_usage":7},"model":"m","stream":true}`, ""},
		{`{"stream_options":{"include_usage":false,"include_usage":false},"model":"m","stream":true}`, ""},
		{`{"stream_options":{},"stream_options":{},"model":"m","stream":true}`, ""},
		{`{"stream_options":"x","model":"m","stream":true}`, ""},
		{`{"model":"m","stream":false}`, ""},
		{`{"model":"m"}`, ""},
	} {
		b, err := operation(t, "POST", chatPath).Scan(chatPath, "", []byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		asking, asked := b.AskingForUsage()
		if asked != (c.want != "") {
			t.Errorf("%s: asked %v", c.body, asked)
		}
		if c.want == "" {
			c.want = c.body
		}
		if got := string(spliced(t, asking, []byte(c.body), "m")); got != c.want {
			t.Errorf("%s became\n%s, want\n%s", c.body, got, c.want)
		}
		if edits := b.Edits("m"); len(edits) > 0 {
			t.Errorf("%s: edits %v without being asked", c.body, edits)
		}
		long := strings.ReplaceAll(c.want, `"model":"m"`, `"model":"long/1"`)
		if got := string(spliced(t, asking, []byte(c.body), "long/1")); got != long {
			t.Errorf("%s with another model became\n%s, want\n%s", c.body, got, long)
		}
	}
	path := "/openai/deployments/m/chat/completions"
	b, err := operation(t, "POST", path).Scan(path, "", []byte(`{"stream":true}`))
	asking, _ := b.AskingForUsage()
	if got, want := string(spliced(t, asking, []byte(`{"stream":true}`), "up")), `{"model":"up",`+asks+`"stream":true}`; err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	for _, path := range []string{"/v1/responses", "/v1/embeddings", "/v1/messages"} {
		b, err := operation(t, "POST", path).Scan(path, "", []byte(`{"model":"m","stream":true}`))
		if _, asked := b.AskingForUsage(); asked || err != nil {
			t.Errorf("%s asks for its usage, %v", path, err)
		}
	}
}

func TestChunkWithNothingButUsageIsLeftOut(t *testing.T) {
	t.Parallel()
	const others = ": ping\n\n" +
		"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\n\n" +
		"data: {\"choices\":[]}\r\n\r\n" +
		"data: {\"choices\":[],\"prompt_filter_results\":[{}]}\n\n" +
		"event: x\ndata: {\"choices\":[],\ndata: \"usage\":null}\n\n" +
		"data: {\"choices\":[{\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3}}\n\n" +
		"data: {\"error\":{},\"choices\":[],\"usage\":{}}\n\n" +
		"data: garbage\n\n"
	const end = "data: [DONE]\n\n"
	large := "data: \"" + strings.Repeat("x", 40_000) + "\"\ndata: " + usageChunk
	for _, c := range [][2]string{
		{others + usageChunk + end, others + end},
		{others + strings.ReplaceAll(usageChunk, "\n", "\r\n") + end, others + end},
		{others + usageChunk, others},
		{others + strings.TrimRight(usageChunk, "\n"), others},
		{others + end, others + end},
		{"data: {\"choices\":[],\ndata: \"usage\":{}}\n\n" + end, end},
		{large + end, large + end},
		{"", ""},
		{"data: {\"cho", "data: {\"cho"},
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(c[0]), "bytes": iotest.OneByteReader(strings.NewReader(c[0]))} {
			got, err := io.ReadAll(format.WithoutUsage(io.NopCloser(iotest.DataErrReader(r))))
			if err != nil || string(got) != c[1] {
				t.Errorf("%s: %.200q, %v; want %.200q", name, got, err, c[1])
			}
		}
	}
	fault := io.ErrUnexpectedEOF
	got, err := io.ReadAll(format.WithoutUsage(io.NopCloser(io.MultiReader(strings.NewReader("data: {"), iotest.ErrReader(fault)))))
	if string(got) != "data: {" || err != fault {
		t.Errorf("%q, %v", got, err)
	}
}

func TestOnlyReadableStreamsAreStripped(t *testing.T) {
	t.Parallel()
	for media, want := range map[string]bool{"text/event-stream; charset=utf-8": true, "application/json": false, "": false} {
		if got := format.IsStream(http.Header{"Content-Type": {media}}); got != want {
			t.Errorf("%s: %v", media, got)
		}
	}
	if format.IsStream(http.Header{"Content-Type": {"text/event-stream"}, "Content-Encoding": {"gzip"}}) {
		t.Error("a compressed stream can be read")
	}
}

// FuzzAskForUsage holds that a body that asks for its usage says so, and nothing
// else that is new.
func FuzzAskForUsage(f *testing.F) {
	f.Add(`{"model":"a","stream":true}`, "b")
	f.Add(` {"stream_options" : {"include_usage":false, "x":1.0},"stream":true,"model":"a"}`, "c")
	f.Fuzz(func(t *testing.T, text, model string) {
		b, err := operation(t, "POST", chatPath).Scan(chatPath, "", []byte(text))
		if err != nil {
			return
		}
		asking, asked := b.AskingForUsage()
		if !asked {
			return
		}
		was, now := decode(t, []byte(text)), decode(t, spliced(t, asking, []byte(text), model))
		options, ok := now["stream_options"].(map[string]any)
		if !ok || options["include_usage"] != true {
			t.Fatalf("%q does not ask: %v", text, now)
		}
		delete(options, "include_usage")
		before, _ := was["stream_options"].(map[string]any)
		delete(before, "include_usage")
		if len(before)+len(options) > 0 && !reflect.DeepEqual(before, options) {
			t.Fatalf("%q: options %v became %v", text, before, options)
		}
		for _, object := range []map[string]any{was, now} {
			delete(object, "stream_options")
			delete(object, "model")
		}
		if !reflect.DeepEqual(was, now) {
			t.Fatalf("%q became %v", text, now)
		}
	})
}

// FuzzWithoutUsage holds that nothing but whole events of usage is left out,
// however the bytes come.
func FuzzWithoutUsage(f *testing.F) {
	f.Add("data: {\"choices\":[{}]}\n\n"+usageChunk+"data: [DONE]\n\n", 3)
	f.Add("data: x\r\n\r\ndata: {\"choices\":[],\"usage\":{}}\r\n\r\n: c", 1)
	f.Fuzz(func(t *testing.T, stream string, split int) {
		split = min(max(split, 0), len(stream))
		whole, err := io.ReadAll(format.WithoutUsage(io.NopCloser(strings.NewReader(stream))))
		if err != nil {
			t.Fatal(err)
		}
		parts := io.MultiReader(strings.NewReader(stream[:split]), iotest.OneByteReader(strings.NewReader(stream[split:])))
		again, err := io.ReadAll(format.WithoutUsage(io.NopCloser(parts)))
		if err != nil || string(again) != string(whole) {
			t.Fatalf("%q, %v; in other pieces %q", whole, err, again)
		}
		rest := string(whole)
		for _, event := range strings.SplitAfter(stream, "\n\n") {
			if after, ok := strings.CutPrefix(rest, event); ok {
				rest = after
				continue
			}
			if strings.Contains(event, "\n\r\n") || strings.HasPrefix(event, "\r\n") || strings.HasPrefix(event, "\n") {
				return // events that this test does not tell apart
			}
			var chunk struct {
				Choices []any
				Usage   map[string]any
			}
			var data strings.Builder
			for line := range strings.Lines(event) {
				if value, ok := strings.CutPrefix(line, "data:"); ok {
					data.WriteString(value)
				}
			}
			if err := json.Unmarshal([]byte(data.String()), &chunk); err != nil || len(chunk.Choices) > 0 || chunk.Usage == nil {
				t.Fatalf("%q was left out of %q: %v", event, stream, err)
			}
		}
		if rest != "" {
			t.Fatalf("%q is new in %q", rest, stream)
		}
	})
}

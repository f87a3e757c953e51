package format_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/usherproxy/usher/internal/format"
)

// target returns the operation of a request with the given target, and its
// URL.
func target(t testing.TB, method, raw string) (*format.Operation, *url.URL) {
	t.Helper()
	u, err := url.ParseRequestURI(raw)
	if err != nil {
		t.Fatal(err)
	}
	op, _ := format.Find(&http.Request{Method: method, URL: u})
	return op, u
}

// Where the model is, and where it must not be looked for. No operation stands
// for 404, an error for 400.
func TestTheModelIsFoundWhereTheFormatHasIt_B80(t *testing.T) {
	t.Parallel()
	const none, bad = "404", "400"
	for _, c := range []struct {
		target, body string
		want         string
		stream       bool
	}{
		{"/v1/chat/completions", `{"model":"m1"}`, "m1", false},
		{"/v1/messages?beta=true", `{"model":"m1","stream":true}`, "m1", true},
		{"/v1/messages/count_tokens", `{"model":"m1"}`, "m1", false},
		{"/v1beta/models/gem-1:generateContent", `{}`, "gem-1", false},
		{"/v1/models/gem-1:generateContent", `{"stream":true}`, "gem-1", false},
		{"/v1beta/models/gem-1:streamGenerateContent?alt=sse", `{}`, "gem-1", true},
		{"/v1beta/models/gem-1:streamGenerateContent", `{"model":"other"}`, "gem-1", true},
		{"/v1beta/models/gem-1%3AgenerateContent", `{}`, "gem-1", false},
		{"/v1beta/models/meta/llama:generateContent", `{}`, "meta/llama", false},
		{"/v1beta/models/meta%2Fllama:generateContent", `{}`, "meta/llama", false},
		{"/v1beta/models/gem:1:generateContent", `{}`, "gem:1", false},
		{"/v1beta/models/gem-1:countTokens:generateContent", `{}`, none, false},
		{"/v1beta/models/gem-1:generateContent/", `{}`, none, false},
		{"//v1beta/models/gem-1:generateContent", `{}`, none, false},
		{"/v1beta/tunedModels/t-1:generateContent", `{}`, none, false},
		{"/v1/projects/p/locations/l/publishers/google/models/gem-1:generateContent", `{}`, none, false},
		{"/openai/deployments/dep-1/chat/completions?api-version=2024-10-21", `{}`, "dep-1", false},
		{"/openai/deployments/dep-1/chat/completions?api-version=2024-10-21", `{"model":"other","stream":true}`, "dep-1", true},
		{"/openai/deployments/a%2Fb/chat/completions", `{}`, "a/b", false},
		{"/openai/deployments/dep-1/completions", `{}`, "dep-1", false},
		{"/openai/deployments/dep-1/nothing", `{}`, none, false},
		{"/openai/deployments/dep-1/responses", `{}`, none, false},
		{"/openai/deployments/../../admin/chat/completions", `{}`, bad, false},
		{"/openai/deployments/%2e%2e/chat/completions", `{}`, bad, false},
		{"/openai/deployments/" + strings.Repeat("x", 10_000) + "/chat/completions", `{}`, bad, false},
		{"/openai/deployments/dep-1/chat/completions", `{"model":"a","model":"b"}`, bad, false},
		{"/openai/deployments/dep-1/chat/completions", ``, bad, false},
		{"/openai/v1/chat/completions", `{"model":"m1"}`, "m1", false},
		{"/openai/v1/chat/completions", `{}`, bad, false},
		{"//v1/chat/completions", `{"model":"m1"}`, none, false},
		{"/v1/chat/completions/", `{"model":"m1"}`, none, false},
		{"/V1/CHAT/COMPLETIONS", `{"model":"m1"}`, none, false},
		{"/v1beta/models/../../admin:generateContent", `{}`, bad, false},
		{"/v1beta/models/%2e%2e%2fadmin:generateContent", `{}`, bad, false},
		{"/v1beta/models/a/./b:generateContent", `{}`, bad, false},
		{"/v1beta/models/a%00b:generateContent", `{}`, bad, false},
		{"/v1beta/models/a%FFb:generateContent", `{}`, bad, false},
		{"/v1beta/models/" + strings.Repeat("x", 10_000) + ":generateContent", `{}`, bad, false},
		{"/v1beta/models/gem-1:generateContent", `[]`, bad, false},
		{"/v1beta/models/gem-1:generateContent", ``, bad, false},
		{"/v1/chat/completions", `{"model":"` + strings.Repeat("x", 10_000) + `"}`, bad, false},
		{"/v1/chat/completions", `{"model":5}`, bad, false},
		{"/v1/messages", `{"model":""}`, bad, false},
		{"/v1/messages", ``, bad, false},
		{"/v1/messages", `[]`, bad, false},
		{"/v1/messages", `{"model":"a","model":"b"}`, bad, false},

		{"/v1beta/models/e-1:embedContent", `{"model":"models/e-1","content":{}}`, "e-1", false},
		{"/v1beta/models/e-1:embedContent", `{"content":{},"model":null}`, "e-1", false},
		{"/v1beta/models/e-1:embedContent", `{"model":"e-2"}`, bad, false},
		{"/v1beta/models/e-1:embedContent", `{"model":"models/e-1","model":"models/e-2"}`, bad, false},
		{"/v1beta/models/e-1:embedContent", `{"model":7}`, bad, false},
		{"/v1beta/models/e-1:batchEmbedContents", `{"requests":[{"model":"models/e-1"},{"model":"e-1"},{},7]}`, "e-1", false},
		{"/v1beta/models/e-1:batchEmbedContents", `{"requests":[{"model":"models/e-1"},{"model":"models/e-2"}]}`, bad, false},
		{"/v1beta/models/e-1:batchEmbedContents", `{"requests":[{"model":"models/e-1"}],"requests":[{"model":"models/e-2"}]}`, bad, false},
		{"/v1beta/models/e-1:batchEmbedContents", `{"requests":{"model":"models/e-2"}}`, "e-1", false},
		{"/v1beta/models/g-1:countTokens", `{"generateContentRequest":{"model":"models/g-1"}}`, "g-1", false},
		{"/v1beta/models/g-1:countTokens", `{"generate_content_request":{"model":"models/g-2"}}`, bad, false},
	} {
		op, u := target(t, http.MethodPost, c.target)
		got, stream := none, false
		if op != nil {
			b, err := op.Scan(u.Path, "", []byte(c.body))
			got, stream = b.Model, b.Stream
			if _, ok := errors.AsType[*format.BadRequest](err); ok {
				got, stream = bad, false
			}
		}
		if got != c.want || stream != c.stream {
			t.Errorf("POST %.80s %.60s: model %s, stream %v; want %s, %v", c.target, c.body, got, stream, c.want, c.stream)
		}
	}
}

func TestSplicePathChangesOnlyTheModel(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"/v1/chat/completions", "m", "/v1/chat/completions"},
		{"/v1/messages", "m", "/v1/messages"},
		{"/v1beta/models/gem-1:generateContent", "gem-2", "/v1beta/models/gem-2:generateContent"},
		{"/v1beta/models/gem-1:generateContent", "gem-1", "/v1beta/models/gem-1:generateContent"},
		{"/v1/models/gem-1%3AstreamGenerateContent", "gem-1", "/v1/models/gem-1%3AstreamGenerateContent"},
		{"/v1/models/gem-1%3AstreamGenerateContent", "gem-2", "/v1/models/gem-2:streamGenerateContent"},
		{"/v1beta/models/meta/llama:countTokens", "meta/llama", "/v1beta/models/meta/llama:countTokens"},
		{"/v1beta/models/meta/llama:countTokens", "x/y", "/v1beta/models/x%2Fy:countTokens"},
		{"/v1beta/models/gem-1:generateContent", "../../x", "/v1beta/models/..%2F..%2Fx:generateContent"},
		{"/v1beta/models/gem-1:generateContent", "m?x=1#y", "/v1beta/models/m%3Fx=1%23y:generateContent"},
		{"/v1beta/models/gem-1:generateContent", "模", "/v1beta/models/%E6%A8%A1:generateContent"},
		{"/openai/deployments/m/chat/completions", "../x", "/v1/chat/completions"},
		{"/openai/deployments/m/chat/completions", "m", "/v1/chat/completions"},
		{"/openai/v1/responses", "m", "/v1/responses"},
		{"/%6fpenai/v1/responses", "m", "/v1/responses"},
	} {
		op, u := target(t, http.MethodPost, c[0])
		path, escaped := op.SplicePath(u, c[1])
		if escaped != c[2] {
			t.Errorf("%s, %s: got %s, want %s", c[0], c[1], escaped, c[2])
		}
		if out := (&url.URL{Path: path, RawPath: escaped}); out.EscapedPath() != escaped {
			t.Errorf("%s, %s: %q is not the path of %q", c[0], c[1], escaped, path)
		}
	}
}

func TestSpliceChangesEveryModelOfTheBody(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"/v1beta/models/m:generateContent", `{"contents":[{"model":"m"}], "model":"m"}`, `{"contents":[{"model":"m"}], "model":"m"}`},
		{"/v1beta/models/m:embedContent", `{ "model" : "models/m", "x":1.0}`, `{ "model" : "models/up", "x":1.0}`},
		{"/v1beta/models/m:embedContent", `{"model":"m","content":{"model":"models/m"}}`, `{"model":"up","content":{"model":"models/m"}}`},
		{
			"/v1beta/models/m:batchEmbedContents",
			` {"requests":[ {"model":"models\/m","content":{"parts":[{"text":"m"}]}}, {"x":[], "model":"models/m"} ], "y":"<&>"}`,
			` {"requests":[ {"model":"models/up","content":{"parts":[{"text":"m"}]}}, {"x":[], "model":"models/up"} ], "y":"<&>"}`,
		},
		{
			"/v1beta/models/m:countTokens",
			`{"contents":[],"generateContentRequest":{"contents":[],"model":"models/m"}}`,
			`{"contents":[],"generateContentRequest":{"contents":[],"model":"models/up"}}`,
		},
		{"/v1/messages", `{"max_tokens":1,"model":"m","messages":[]}`, `{"max_tokens":1,"model":"up","messages":[]}`},
	} {
		op, u := target(t, http.MethodPost, c[0])
		body := []byte(c[1])
		b, err := op.Scan(u.Path, "", body)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(spliced(t, b, body, "up")); got != c[2] {
			t.Errorf("%s:\n got %s\nwant %s", c[0], got, c[2])
		}
		if edits := b.Edits("m"); len(edits) > 0 {
			t.Errorf("%s: the same model takes edits: %v", c[0], edits)
		}
	}
}

func TestScanReadsLimitsAndSessionsOfEveryFormat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		target, body string
		max          int64
		session      bool
	}{
		{"/v1/messages", `{"model":"m","max_tokens":64,"metadata":{"user_id":"u"}}`, 64, true},
		{"/v1/messages", `{"model":"m","max_completion_tokens":64,"user":"u"}`, 0, false},
		{"/v1beta/models/m:generateContent", `{"generationConfig":{"maxOutputTokens":64},"cachedContent":"cachedContents/c"}`, 64, true},
		{"/v1beta/models/m:streamGenerateContent", `{"generation_config":{"max_output_tokens":64},"cached_content":"cachedContents/c"}`, 64, true},
		{"/v1beta/models/m:generateContent", `{"generationConfig":{"maxOutputTokens":"64"},"cachedContent":7}`, 0, false},
		{"/v1beta/models/m:generateContent", `{"generationConfig":[],"maxOutputTokens":64}`, 0, false},
		{"/v1beta/models/m:embedContent", `{"generationConfig":{"maxOutputTokens":64}}`, 0, false},
	} {
		op, u := target(t, http.MethodPost, c.target)
		b, err := op.Scan(u.Path, "", []byte(c.body))
		if err != nil || b.MaxOutputTokens != c.max || (b.Affinity != "") != c.session || b.InputTokens == 0 {
			t.Errorf("%s %s: %+v, %v; want a limit of %d, a session %v", c.target, c.body, b, err, c.max, c.session)
		}
	}
	for _, path := range []string{"/v1/messages/count_tokens", "/v1/models/m:countTokens"} {
		op, u := target(t, http.MethodPost, path)
		if b, err := op.Scan(u.Path, "", []byte(`{"model":"m","max_tokens":5}`)); err != nil || b.InputTokens != 0 || b.MaxOutputTokens != 0 {
			t.Errorf("%s uses %+v, %v; want no tokens", path, b, err)
		}
	}
}

// FuzzSplicePath holds that a model never leaves its segment, and that a path
// that was spliced names the model that was put in.
func FuzzSplicePath(f *testing.F) {
	f.Add("/v1beta/models/gem-1:generateContent", "gem-2", `{}`)
	f.Add("/v1/models/a%2Fb%3AbatchEmbedContents", "../x?y#z", `{"requests":[{"model":"models/a/b"}]}`)
	f.Add("/v1/models/m:countTokens", "a:countTokens", `{"generateContentRequest":{"model":"m"}}`)
	f.Fuzz(func(t *testing.T, raw, model, body string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil {
			return
		}
		op, ok := format.Find(&http.Request{Method: http.MethodPost, URL: u})
		if !ok {
			return
		}
		b, err := op.Scan(u.Path, "", []byte(body))
		if err != nil {
			return
		}
		path, escaped := op.SplicePath(u, model)
		out, err := url.ParseRequestURI(escaped)
		if err != nil || out.Path != path || out.RawQuery != "" || out.Fragment != "" {
			t.Fatalf("SplicePath(%q, %q) = %q, %q, which is read as %+v (%v)", raw, model, path, escaped, out, err)
		}
		if model != b.Model && strings.Count(escaped, "/") > strings.Count(op.Route, "/") {
			t.Fatalf("SplicePath(%q, %q) = %q has another segment", raw, model, escaped)
		}
		sent := spliced(t, b, []byte(body), model)
		if model == "" || !utf8.ValidString(model) || op.Format != format.Gemini {
			return
		}
		again, err := op.Scan(path, "", sent)
		if op.Model(path) == model && err != nil && len(model) < format.MaxModel {
			var bad *format.BadRequest
			if errors.As(err, &bad) && strings.Contains(bad.Message, "not that of the path") {
				t.Fatalf("after the splice of %q: %s: %v", model, sent, err)
			}
		}
		if err == nil && again.Model != model {
			t.Fatalf("after the splice of %q the model is %q", model, again.Model)
		}
	})
}

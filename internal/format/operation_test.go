package format_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/format"
)

// operation returns the operation of a route.
func operation(t testing.TB, method, path string) *format.Operation {
	t.Helper()
	op, ok := format.Match(method, path)
	if !ok {
		t.Fatalf("Match(%s, %s) found nothing", method, path)
	}
	return op
}

func TestMatchKnowsTheOperations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, path string
		kind         format.Kind
		want         string
	}{
		{"POST", "/v1/chat/completions", format.Inference, "openai chat chat_completions /v1/chat/completions"},
		{"POST", "/v1/completions", format.Inference, "openai text_completion  /v1/completions"},
		{"POST", "/v1/responses", format.Inference, "openai chat responses /v1/responses"},
		{"POST", "/v1/embeddings", format.Inference, "openai embeddings  /v1/embeddings"},
		{"POST", "/v1/moderations", format.Inference, "openai moderation  /v1/moderations"},
		{"POST", "/v1/images/generations", format.Inference, "openai generate_content  /v1/images/generations"},
		{"GET", "/v1/models", format.ListModels, "openai models  /v1/models"},
		{"GET", "/v1/models/gpt-4o", format.GetModel, "openai models  /v1/models/{model}"},
		{"GET", "/v1/models/meta/llama", format.GetModel, "openai models  /v1/models/{model}"},
		{"GET", "/v1/models/ft:gpt-4o:org::abc", format.GetModel, "openai models  /v1/models/{model}"},
	} {
		op, ok := format.Match(c.method, c.path)
		if !ok {
			t.Errorf("Match(%s, %s) found nothing", c.method, c.path)
			continue
		}
		got := strings.Join([]string{op.Format, op.Name, op.APIType, op.Route}, " ")
		if got != c.want || op.Kind != c.kind || op.Method != c.method {
			t.Errorf("Match(%s, %s) = %s %s (kind %d), want %s (kind %d)", c.method, c.path, op.Method, got, op.Kind, c.want, c.kind)
		}
	}
}

func TestMatchRefusesOtherPaths(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"GET", "/v1/chat/completions"},
		{"POST", "/v1/chat/completions/"},
		{"POST", "//v1/chat/completions"},
		{"POST", "/V1/CHAT/COMPLETIONS"},
		{"POST", "/v1/chat/../chat/completions"},
		{"POST", "/chat/completions"},
		{"post", "/v1/chat/completions"},
		{"OPTIONS", "/v1/chat/completions"},
		{"GET", "/v1/responses"},
		{"GET", "/v1/responses/resp_1"},
		{"POST", "/v1/models"},
		{"GET", "/v1/models/"},
		{"GET", "/v1/models/gem-1:generateContent"},
		{"GET", "/v1/models/gem-1:streamGenerateContent"},
		{"POST", "/v1/models/gem-1:generateContent"},
		{"GET", "/v1/realtime"},
		{"GET", ""},
	} {
		if op, ok := format.Match(c[0], c[1]); ok {
			t.Errorf("Match(%s, %s) = %s, want nothing", c[0], c[1], op.Route)
		}
	}
}

func TestModelReadsThePath(t *testing.T) {
	t.Parallel()
	get := operation(t, http.MethodGet, "/v1/models/x")
	for path, want := range map[string]string{
		"/v1/models/gpt-4o":                "gpt-4o",
		"/v1/models/meta/llama":            "meta/llama",
		"/v1/models/..":                    "..",
		"/v1/models/gem-1:generateContent": "",
		"/v1/models/":                      "",
		"/v1/other":                        "",
	} {
		if got := get.Model(path); got != want {
			t.Errorf("Model(%s) = %q, want %q", path, got, want)
		}
	}
	if got := operation(t, "GET", "/v1/models").Model("/v1/models"); got != "" {
		t.Errorf("Model of the listing = %q, want none", got)
	}
}

func TestAllowListsMethods(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/v1/chat/completions": "POST",
		"/v1/models":           "GET",
		"/v1/models/m":         "GET",
		"/nowhere":             "",
	} {
		if got := format.Allow(path); got != want {
			t.Errorf("Allow(%s) = %q, want %q", path, got, want)
		}
	}
}

func TestFormatsAreListed(t *testing.T) {
	t.Parallel()
	if !slices.Contains(format.Formats(), format.OpenAI) {
		t.Errorf("Formats() = %v, want %s among them", format.Formats(), format.OpenAI)
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { format.Match("POST", "/v1/images/generations") }); n != 0 {
		t.Errorf("Match allocates %v times", n)
	}
}

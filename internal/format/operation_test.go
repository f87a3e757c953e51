package format_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/format"
)

// operation returns the operation of a route.
func operation(t testing.TB, method, path string) *format.Operation {
	t.Helper()
	op, ok := find(method, path, nil)
	if !ok {
		t.Fatalf("Find(%s, %s) found nothing", method, path)
	}
	return op
}

// find finds the operation of a request with a path that has no escapes.
func find(method, path string, h http.Header) (*format.Operation, bool) {
	return format.Find(&http.Request{Method: method, URL: &url.URL{Path: path}, Header: h})
}

func TestFindKnowsTheOperations(t *testing.T) {
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
		{"POST", "/v1/images/edits", format.Inference, "openai generate_content  /v1/images/edits"},
		{"POST", "/v1/images/variations", format.Inference, "openai generate_content  /v1/images/variations"},
		{"POST", "/v1/audio/speech", format.Inference, "openai speech  /v1/audio/speech"},
		{"POST", "/v1/audio/transcriptions", format.Inference, "openai transcription  /v1/audio/transcriptions"},
		{"POST", "/v1/audio/translations", format.Inference, "openai translation  /v1/audio/translations"},
		{"POST", "/openai/v1/responses", format.Inference, "openai chat responses /openai/v1/responses"},
		{"GET", "/openai/v1/models", format.ListModels, "openai models  /openai/v1/models"},
		{"POST", "/openai/deployments/d/chat/completions", format.Inference, "openai chat chat_completions /openai/deployments/{model}/chat/completions"},
		{"POST", "/openai/deployments/d/completions", format.Inference, "openai text_completion  /openai/deployments/{model}/completions"},
		{"POST", "/v1/responses/compact", format.Inference, "openai chat responses /v1/responses/compact"},
		{"POST", "/v1/responses/input_tokens", format.Inference, "openai count_tokens  /v1/responses/input_tokens"},
		{"GET", "/v1/responses/resp_1", format.FollowUp, "openai responses  /v1/responses/{path}"},
		{"POST", "/v1/responses/resp_1/cancel", format.FollowUp, "openai responses  /v1/responses/{path}"},
		{"DELETE", "/openai/v1/responses/resp_1", format.FollowUp, "openai responses  /openai/v1/responses/{path}"},
		{"POST", "/v1/videos", format.Inference, "openai generate_content  /v1/videos"},
		{"GET", "/v1/videos/v/content", format.FollowUp, "openai videos  /v1/videos/{path}"},
		{"POST", "/v1/files", format.Stored, "openai files  /v1/files"},
		{"DELETE", "/v1/files/f", format.Stored, "openai files  /v1/files/{path}"},
		{"POST", "/v1/uploads/u/complete", format.Stored, "openai uploads  /v1/uploads/{path}"},
		{"GET", "/v1/batches", format.Stored, "openai batches  /v1/batches"},
		{"POST", "/v1/fine_tuning/jobs", format.Stored, "openai fine_tuning  /v1/fine_tuning/jobs"},
		{"GET", "/v1/vector_stores/v/files", format.Stored, "openai vector_stores  /v1/vector_stores/{path}"},
		{"POST", "/v1/messages/batches", format.Stored, "anthropic batches  /v1/messages/batches"},
		{"GET", "/v1/messages/batches/b/results", format.Stored, "anthropic batches  /v1/messages/batches/{path}"},
		{"GET", "/v1/models", format.ListModels, "openai models  /v1/models"},
		{"GET", "/v1/models/gpt-4o", format.GetModel, "openai models  /v1/models/{model}"},
		{"GET", "/v1/models/meta/llama", format.GetModel, "openai models  /v1/models/{model}"},
		{"GET", "/v1/models/ft:gpt-4o:org::abc", format.GetModel, "openai models  /v1/models/{model}"},
		{"POST", "/v1/messages", format.Inference, "anthropic chat  /v1/messages"},
		{"POST", "/v1/messages/count_tokens", format.Inference, "anthropic count_tokens  /v1/messages/count_tokens"},
		{"POST", "/v1beta/models/gem-1:generateContent", format.Inference, "gemini generate_content  /v1beta/models/{model}:generateContent"},
		{"POST", "/v1/models/gem-1:generateContent", format.Inference, "gemini generate_content  /v1/models/{model}:generateContent"},
		{"POST", "/v1beta/models/gem-1:streamGenerateContent", format.Inference, "gemini generate_content  /v1beta/models/{model}:streamGenerateContent"},
		{"POST", "/v1beta/models/gem-1:embedContent", format.Inference, "gemini embeddings  /v1beta/models/{model}:embedContent"},
		{"POST", "/v1/models/gem-1:batchEmbedContents", format.Inference, "gemini embeddings  /v1/models/{model}:batchEmbedContents"},
		{"POST", "/v1beta/models/gem-1:countTokens", format.Inference, "gemini count_tokens  /v1beta/models/{model}:countTokens"},
		{"GET", "/v1beta/models", format.ListModels, "gemini models  /v1beta/models"},
		{"GET", "/v1beta/models/gem-1", format.GetModel, "gemini models  /v1beta/models/{model}"},
	} {
		op, ok := find(c.method, c.path, nil)
		if !ok {
			t.Errorf("Find(%s, %s) found nothing", c.method, c.path)
			continue
		}
		got := strings.Join([]string{op.Format, op.Name, op.APIType, op.Route}, " ")
		if got != c.want || op.Kind != c.kind || op.Method != c.method {
			t.Errorf("Find(%s, %s) = %s %s (kind %d), want %s (kind %d)", c.method, c.path, op.Method, got, op.Kind, c.want, c.kind)
		}
	}
}

func TestFindRefusesOtherPaths(t *testing.T) {
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
		{"PUT", "/v1/responses/resp_1"},
		{"GET", "/v1/responses/resp_1/"},
		{"GET", "/v1/responses//cancel"},
		{"GET", "/v1/responses/../files"},
		{"GET", "/v1/responses/x/.."},
		{"GET", "/v1/files/"},
		{"GET", "/v1/videos"},
		{"HEAD", "/v1/files"},
		{"POST", "/v1/models"},
		{"GET", "/v1/models/"},
		{"GET", "/v1/models/gem-1:generateContent"},
		{"GET", "/v1/models/gem-1:streamGenerateContent"},
		{"POST", "/v1/models/gem-1:predict"},
		{"GET", "/v1/realtime"},
		{"POST", "/v1/messages/"},
		{"POST", "/v1/messages/batches/"},
		{"GET", "/v1/messages"},
		{"POST", "/v1beta/models/:generateContent"},
		{"POST", "/v1beta/models/gem-1:generatecontent"},
		{"POST", "/v1beta/models/gem-1"},
		{"GET", "/v1beta/models/gem-1:generateContent"},
		{"POST", "/v1beta/tunedModels/t-1:generateContent"},
		{"POST", "/v1/projects/p/locations/l/publishers/google/models/gem-1:generateContent"},
		{"POST", "/v2/models/gem-1:generateContent"},
		{"GET", ""},
	} {
		if op, ok := find(c[0], c[1], nil); ok {
			t.Errorf("Find(%s, %s) = %s, want nothing", c[0], c[1], op.Route)
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

func TestMethodsListsMethods(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/v1/chat/completions": "POST",
		"/v1/models":           "GET",
		"/v1/models/m":         "GET",
		"/v1/messages":         "POST",
		"/v1beta/models":       "GET",

		"/v1/models/m:countTokens":         "POST",
		"/v1beta/models/m:generateContent": "POST",
		"/nowhere":                         "",
	} {
		if got := format.Methods(path); got != want {
			t.Errorf("Methods(%s) = %q, want %q", path, got, want)
		}
	}
}

func TestFormatsAreListed(t *testing.T) {
	t.Parallel()
	if got, want := format.Formats(), []string{format.OpenAI, format.Anthropic, format.Gemini}; !slices.Equal(got, want) {
		t.Errorf("Formats() = %v, want %v", got, want)
	}
}

func TestFindDoesNotAllocate(t *testing.T) {
	r := &http.Request{Method: "POST", URL: &url.URL{Path: "/v1/images/generations"}}
	if n := testing.AllocsPerRun(100, func() { format.Find(r) }); n != 0 {
		t.Errorf("Find allocates %v times", n)
	}
}

func TestFindLooksForASignWhereFormatsShareAPath(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header http.Header
		query  string
		want   string
	}{
		"none":                {nil, "", format.OpenAI},
		"a bearer token":      {http.Header{"Authorization": {"Bearer k"}}, "limit=5", format.OpenAI},
		"anthropic-version":   {http.Header{"Anthropic-Version": {"2023-06-01"}, "Authorization": {"Bearer k"}}, "", format.Anthropic},
		"x-goog-api-key":      {http.Header{"X-Goog-Api-Key": {"k"}}, "", format.Gemini},
		"a key in the query":  {nil, "pageSize=5&key=k", format.Gemini},
		"another word as key": {nil, "monkey=k", format.OpenAI},
	} {
		for _, path := range []string{"/v1/models", "/v1/models/m"} {
			op, ok := format.Find(&http.Request{Method: "GET", URL: &url.URL{Path: path, RawQuery: c.query}, Header: c.header})
			if !ok || op.Format != c.want {
				t.Errorf("%s: %s is of %s, want %s", name, path, op.Format, c.want)
			}
		}
		op, ok := format.Find(&http.Request{Method: "POST", URL: &url.URL{Path: chatPath, RawQuery: c.query}, Header: c.header})
		if !ok || op.Format != format.OpenAI {
			t.Errorf("%s: a sign of %s makes a chat of OpenAI one of %s", name, c.want, op.Format)
		}
	}
}

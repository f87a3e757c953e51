package format_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/usherproxy/usher/internal/format"
)

func TestModelsAreListedInOpenAIsWords(t *testing.T) {
	t.Parallel()
	a, b := format.Model{ID: "gpt-4o", Created: 1686935002, OwnedBy: "usher"}, format.Model{ID: "meta/llama"}
	for want, models := range map[string][]format.Model{
		`{"object":"list","data":[]}`: nil,
		`{"object":"list","data":[{"id":"gpt-4o","object":"model","created":1686935002,"owned_by":"usher"},{"id":"meta/llama","object":"model","created":0,"owned_by":""}]}`: {a, b},
	} {
		w := httptest.NewRecorder()
		operation(t, "GET", "/v1/models").WriteModels(w, models)
		if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || w.Body.String() != want {
			t.Errorf("WriteModels(%v) = %d %v %s, want %s", models, w.Code, w.Header(), w.Body, want)
		}
	}
	w := httptest.NewRecorder()
	operation(t, "GET", "/v1/models/m").WriteModel(w, a)
	if want := `{"id":"gpt-4o","object":"model","created":1686935002,"owned_by":"usher"}`; w.Body.String() != want {
		t.Errorf("WriteModel = %s, want %s", w.Body, want)
	}
}

func TestModelsAreListedInTheCallersWords(t *testing.T) {
	t.Parallel()
	models := []format.Model{{ID: "a", Created: 1686935002}, {ID: "b/c"}}
	for _, c := range []struct {
		path   string
		header http.Header
		models []format.Model
		want   string
	}{
		{
			"/v1/models",
			http.Header{"Anthropic-Version": {"2023-06-01"}},
			models,
			`{"data":[{"type":"model","id":"a","display_name":"a","created_at":"2023-06-16T17:03:22Z"},` +
				`{"type":"model","id":"b/c","display_name":"b/c","created_at":"1970-01-01T00:00:00Z"}],"has_more":false,"first_id":"a","last_id":"b/c"}`,
		},
		{"/v1/models", http.Header{"Anthropic-Version": {"2023-06-01"}}, nil, `{"data":[],"has_more":false,"first_id":null,"last_id":null}`},
		{
			"/v1beta/models", nil, models[:1],
			`{"models":[{"name":"models/a","displayName":"a","supportedGenerationMethods":["generateContent","countTokens","embedContent","batchEmbedContents"]}]}`,
		},
		{"/v1/models", http.Header{"X-Goog-Api-Key": {"k"}}, nil, `{"models":[]}`},
	} {
		op, _ := find("GET", c.path, c.header)
		w := httptest.NewRecorder()
		op.WriteModels(w, c.models)
		if w.Code != 200 || w.Body.String() != c.want {
			t.Errorf("%s %v: got %d %s, want %s", c.path, c.header, w.Code, w.Body, c.want)
		}
	}
	for want, h := range map[string]http.Header{
		`{"type":"model","id":"b/c","display_name":"b/c","created_at":"1970-01-01T00:00:00Z"}`:                                                         {"Anthropic-Version": {"1"}},
		`{"name":"models/b/c","displayName":"b/c","supportedGenerationMethods":["generateContent","countTokens","embedContent","batchEmbedContents"]}`: {"X-Goog-Api-Key": {"k"}},
	} {
		op, _ := find("GET", "/v1/models/b/c", h)
		w := httptest.NewRecorder()
		op.WriteModel(w, models[1])
		if op.Model("/v1/models/b/c") != "b/c" || w.Body.String() != want {
			t.Errorf("%v: got %s, want %s", h, w.Body, want)
		}
	}
}

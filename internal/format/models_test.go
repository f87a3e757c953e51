package format_test

import (
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
		format.WriteModels(w, models)
		if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || w.Body.String() != want {
			t.Errorf("WriteModels(%v) = %d %v %s, want %s", models, w.Code, w.Header(), w.Body, want)
		}
	}
	w := httptest.NewRecorder()
	format.WriteModel(w, a)
	if want := `{"id":"gpt-4o","object":"model","created":1686935002,"owned_by":"usher"}`; w.Body.String() != want {
		t.Errorf("WriteModel = %s, want %s", w.Body, want)
	}
}

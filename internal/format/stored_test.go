package format_test

import (
	"testing"

	"github.com/usherproxy/usher/internal/format"
)

func TestReferencesAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, body string
		want       format.References
	}{
		{"/v1/responses", `{"model":"m","previous_response_id":"r1"}`, format.References{Answer: "r1"}},
		{"/v1/responses", `{"model":"m","previous_response_id":null,"conversation":null}`, format.References{}},
		{"/v1/responses", `{"model":"m","conversation":"c"}`, format.References{Stored: true}},
		{"/v1/responses", `{"model":"m","conversation":{"id":"c"}}`, format.References{Stored: true}},
		{"/v1/responses", `{"model":"m","input":[{"content":[{"file_id" :` + "\n" + `"f"}]}]}`, format.References{Stored: true}},
		{"/v1/responses", `{"model":"m","tools":[{"vector_store_ids":["v"]}]}`, format.References{Stored: true}},
		{"/v1/responses", `{"model":"m","input":"\"file_id\":\"x\"","x":["file_id",":"]}`, format.References{}},
		{"/v1/responses", `{"model":"m","tools":[{"properties":{"file_id":{"type":"string"}}}]}`, format.References{}},
		{"/v1/chat/completions", `{"model":"m","previous_response_id":"r1","conversation":"c"}`, format.References{}},
		{"/v1/chat/completions", `{"model":"m","messages":[{"content":[{"file":{"file_id":"f"}}]}]}`, format.References{Stored: true}},
		{"/v1/messages", `{"model":"m","messages":[{"content":[{"source":{"type":"file","file_id":"f"}}]}]}`, format.References{Stored: true}},
		{"/v1/embeddings", `{"model":"m","file_id":"f"}`, format.References{}},
		{"/v1/responses/r1/cancel", ``, format.References{Answer: "r1"}},
		{"/v1/files", `no JSON`, format.References{Stored: true}},
	} {
		b, err := operation(t, "POST", c.path).Scan(c.path, "", []byte(c.body))
		if err != nil || b.References != c.want {
			t.Errorf("%s %s: %+v, %v; want %+v", c.path, c.body, b.References, err, c.want)
		}
	}
}

func TestElsewhereIsWhatTheProviderDoesNotKnow(t *testing.T) {
	t.Parallel()
	const previous = `{"error":{"code":"previous_response_not_found","param":"previous_response_id"}}`
	for _, c := range []struct {
		path   string
		status int
		body   string
		want   bool
	}{
		{"/v1/responses/r1", 404, ``, true},
		{"/v1/responses/r1", 400, previous, false},
		{"/v1/responses/r1", 200, ``, false},
		{"/v1/responses", 400, previous, true},
		{"/v1/responses", 404, `{"error":{"param":"previous_response_id"}}`, true},
		{"/v1/responses", 404, `{"error":{"param":"model","code":"model_not_found"}}`, false},
		{"/v1/responses", 400, `no JSON`, false},
		{"/v1/responses", 500, previous, false},
		{"/v1/chat/completions", 404, `{"error":{"param":"previous_response_id"}}`, false},
	} {
		if got := operation(t, "POST", c.path).Elsewhere(c.status, []byte(c.body)); got != c.want {
			t.Errorf("%s %d %s: %v", c.path, c.status, c.body, got)
		}
	}
}

package caddymodule_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/usherproxy/usher/caddymodule"
)

func TestPassRefusesWhatNobodyAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		next   func(http.ResponseWriter) error
		status int
		body   string
	}{
		"nothing":       {func(http.ResponseWriter) error { return nil }, 404, "unknown_route"},
		"informational": {func(w http.ResponseWriter) error { w.WriteHeader(http.StatusEarlyHints); return nil }, 404, "unknown_route"},
		"status":        {func(w http.ResponseWriter) error { w.WriteHeader(http.StatusNoContent); return nil }, 204, ""},
		"text":          {func(w http.ResponseWriter) error { _, err := io.WriteString(w, "x"); return err }, 200, "x"},
		"copy":          {func(w http.ResponseWriter) error { _, err := io.Copy(w, strings.NewReader("x")); return err }, 200, "x"},
		"flush":         {func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() }, 200, ""},
		"hijack": {func(w http.ResponseWriter) error {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			_, err = io.WriteString(conn, "HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\n\r\n")
			return err
		}, 418, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error { return c.next(w) })
				if err := caddymodule.Pass(w, r, next, nil); err != nil {
					t.Error(err)
				}
			}))
			defer srv.Close()
			resp, err := srv.Client().Get(srv.URL + "/other")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != c.status || !strings.Contains(string(body), c.body) || c.body == "" && len(body) > 0 || err != nil {
				t.Errorf("%s %q, %v, want %d %q", resp.Status, body, err, c.status, c.body)
			}
		})
	}
}

// What is not served is refused in the words of the API that it belongs to.
func TestWhatIsNotServedIsRefusedInItsFormat(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	const openai, anthropic, gemini = `"type":"invalid_request_error","param":null`, `"type":"not_found_error"`, `"status":"NOT_FOUND"`
	for _, c := range []struct {
		path, want string
		fields     []option
	}{
		{"/v1/assistants", openai, nil},
		{"/v1/containers", openai, nil},
		{"/v1/evals", openai, nil},
		{"/v1/files", openai, nil},
		{"/v1/vector_stores", openai, nil},
		{"/v1/messages/batches", anthropic, nil},
		{"/v1/skills", anthropic, []option{header("Anthropic-Version", "2023-06-01")}},
		{"/v1beta/files", gemini, nil},
		{"/upload/v1beta/files", gemini, nil},
		{"/v1beta/cachedContents", gemini, nil},
		{"/v1beta/models/m:batchGenerateContent", gemini, nil},
		{"/v1/projects/p/locations/l/publishers/google/models/m:generateContent", gemini, nil},
	} {
		r := st.do(http.MethodPost, c.path, "{}", c.fields...)
		if r.StatusCode != http.StatusNotFound || r.Header.Get("X-Usher-Reason") != "unknown_route" || !strings.Contains(r.body, c.want) {
			t.Errorf("%s: %s %s", c.path, r.Status, r.body)
		}
	}
	up.expect(t, 0)
}

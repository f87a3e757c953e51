package caddymodule_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/usherproxy/usher/policy"
)

// oddBody is JSON that a decoder and an encoder would change.
const oddBody = "{ \"seed\":9007199254740993,\t\"model\" : %s , \"temperature\":1.0,\"dup\":1,\"dup\":2,\"stop\":\"<&>\\u00e9\", \"x\":{\"model\":\"m\"},\n\"messages\":[{\"role\":\"user\",\"content\":\"é\"}]}\r\n"

func TestBodyIsPassedOnAsItIs_B81(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up) + "model public {\nserve " + up.name + " up/stream-1\n}\n"})
	for model, want := range map[string]string{
		`"m"`:      fmt.Sprintf(oddBody, `"m"`),
		`"\u006d"`: fmt.Sprintf(oddBody, `"\u006d"`),
		`"public"`: fmt.Sprintf(oddBody, `"up/stream-1"`),
	} {
		n := len(up.seen())
		st.ask(fmt.Sprintf(oddBody, model), http.StatusOK, header("Content-Type", "application/json; charset=utf-8"))
		h := up.expect(t, n+1)[n]
		if h.body != want {
			t.Errorf("model %s: body\n%q, want\n%q", model, h.body, want)
		}
		if h.ContentLength != int64(len(want)) || len(h.TransferEncoding) != 0 {
			t.Errorf("model %s: Content-Length %d and encoding %q, want %d", model, h.ContentLength, h.TransferEncoding, len(want))
		}
		if got := h.Header.Get("Content-Type"); got != "application/json; charset=utf-8" {
			t.Errorf("Content-Type %q", got)
		}
	}
}

func TestBodyOfUnknownLengthIsSentWithOne(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	st.ask(chatBody, http.StatusOK, func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(oneByte{strings.NewReader(chatBody)}), -1
	})
	if h := up.expect(t, 1)[0]; h.body != chatBody || h.ContentLength != int64(len(chatBody)) {
		t.Errorf("body %q of length %d", h.body, h.ContentLength)
	}
}

// oneByte reads a byte at a time.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }

// expectRefusal checks a refusal of Usher's own, in OpenAI's format.
func (r *reply) expectRefusal(t *testing.T, status int, code string) {
	t.Helper()
	if r.StatusCode != status || r.Header.Get("X-Usher-Reason") != code || !strings.Contains(r.body, fmt.Sprintf(`"code":%q`, code)) ||
		r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("status %s, header %v\n%s\nwant %d %s", r.Status, r.Header, r.body, status, code)
	}
}

// Table T2, and other requests that nobody can serve: no lease, no attempt.
func TestRequestsThatCannotBeServedAreRefusedAtOnce_B80(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up) + "max_body 1KiB\n"})
	long := strings.Repeat("m", 10000)
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		code               string
	}{
		"number":        {"POST", chatPath, `{"model":5}`, 400, "bad_request"},
		"empty name":    {"POST", chatPath, `{"model":""}`, 400, "bad_request"},
		"no model":      {"POST", chatPath, `{"messages":[]}`, 400, "bad_request"},
		"no body":       {"POST", chatPath, ``, 400, "bad_request"},
		"list":          {"POST", chatPath, `[]`, 400, "bad_request"},
		"no JSON":       {"POST", chatPath, `{"model":"m"`, 400, "bad_request"},
		"two models":    {"POST", chatPath, `{"model":"m","model":"m"}`, 400, "bad_request"},
		"long name":     {"POST", chatPath, `{"model":"` + long[:500] + `"}`, 400, "bad_request"},
		"unknown":       {"POST", chatPath, `{"model":"other"}`, 404, "model_not_found"},
		"escaped path":  {"POST", chatPath, `{"model":"../../x"}`, 404, "model_not_found"},
		"query in name": {"POST", chatPath, `{"model":"m?x=1#y"}`, 404, "model_not_found"},
		"large":         {"POST", chatPath, `{"model":"` + long + `"}`, 413, "body_too_large"},
		"slash before":  {"POST", "//v1/chat/completions", chatBody, 404, "unknown_route"},
		"slash behind":  {"POST", "/v1/chat/completions/", chatBody, 404, "unknown_route"},
		"upper case":    {"POST", "/V1/CHAT/COMPLETIONS", chatBody, 404, "unknown_route"},
		"dots":          {"POST", "/v1/x/../chat/completions", chatBody, 404, "unknown_route"},
		"other service": {"POST", "/v1/realtime/sessions", chatBody, 404, "unknown_route"},
		"root":          {"GET", "/", "", 404, "unknown_route"},
		"GET":           {"GET", chatPath, "", 405, "wrong_method"},
		"PUT":           {"PUT", chatPath, chatBody, 405, "wrong_method"},
		"OPTIONS":       {"OPTIONS", chatPath, "", 405, "wrong_method"},
		"POST models":   {"POST", "/v1/models", chatBody, 405, "wrong_method"},
		"model":         {"GET", "/v1/models/other", "", 404, "model_not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			r := st.do(c.method, c.path, c.body)
			r.expectRefusal(t, c.status, c.code)
			wantAllow := map[bool]string{true: "POST"}[c.status == 405]
			if c.path == "/v1/models" {
				wantAllow = "GET"
			}
			if got := r.Header.Get("Allow"); got != wantAllow {
				t.Errorf("Allow %q, want %q", got, wantAllow)
			}
			if id := r.id(); id != "" {
				if d := st.decision(id); len(d.Selections)+len(d.Admissions)+len(d.Attempts) != 0 || d.Disposition != policy.ClientFault {
					t.Errorf("decision %+v, want client_fault and nothing asked", d)
				}
			}
		})
	}
	if r := st.do("HEAD", chatPath, ""); r.StatusCode != http.StatusMethodNotAllowed || r.body != "" {
		t.Errorf("HEAD: status %s, body %q", r.Status, r.body)
	}
	up.expect(t, 0)
}

func TestOtherHandlersOfTheSiteComeFirstWhereUsherHasNothingToSay(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{
		site: "@preflight method OPTIONS\nrespond @preflight 204\nrespond /healthz ok 200\nrespond /nothing \"\" 200\n" +
			"handle_errors {\nrespond \"{err.status_code}\"\n}\nerror /broken 503\n",
		usher: up.provider() + model(up),
	})
	for path, want := range map[string]int{"/healthz": 200, "/nothing": 200, "/broken": 503} {
		if r := st.do(http.MethodGet, path, ""); r.StatusCode != want || r.Header.Get("X-Usher-Reason") != "" {
			t.Errorf("GET %s: %s %v, want %d", path, r.Status, r.Header, want)
		}
	}
	if r := st.do(http.MethodOptions, chatPath, ""); r.StatusCode != http.StatusNoContent {
		t.Errorf("OPTIONS: %s, want 204", r.Status)
	}
	st.ask(chatBody, http.StatusOK)
}

func TestModelsAreListedWithoutAskingAnybody(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up) + "model org/n " + up.name + "\n" + callers})
	r := st.do(http.MethodGet, "/v1/models", "", bearer(secret3))
	want := `{"object":"list","data":[{"id":"m","object":"model","created":0,"owned_by":"usher"},{"id":"org/n","object":"model","created":0,"owned_by":"usher"}]}`
	if r.StatusCode != http.StatusOK || strings.TrimSpace(r.body) != want {
		t.Errorf("status %s\n%s, want\n%s", r.Status, r.body, want)
	}
	r = st.do(http.MethodGet, "/v1/models/org/n", "", bearer(secret3))
	if want := `{"id":"org/n","object":"model","created":0,"owned_by":"usher"}`; r.StatusCode != http.StatusOK || strings.TrimSpace(r.body) != want {
		t.Errorf("status %s\n%s, want\n%s", r.Status, r.body, want)
	}
	for _, path := range []string{"/v1/models", "/v1/models/m"} {
		st.do(http.MethodGet, path, "").expectRefusal(t, http.StatusUnauthorized, "unknown_caller")
	}
	up.expect(t, 0)
}

func TestUnknownCallersAreRefused(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up) + callers})
	for name, o := range map[string]option{
		"no key": header("X-None", ""), "wrong key": bearer("wrong"), "key of a provider": bearer(secret1), "other scheme": header("Authorization", "Basic "+secret3),
	} {
		t.Run(name, func(t *testing.T) {
			r := st.ask(chatBody, http.StatusUnauthorized, o)
			r.expectRefusal(t, http.StatusUnauthorized, "unknown_caller")
			if got := r.Header.Get("WWW-Authenticate"); got != "Bearer" {
				t.Errorf("WWW-Authenticate %q, want Bearer", got)
			}
		})
	}
	r := st.ask(chatBody, http.StatusOK, bearer(secret2))
	if d := st.decision(r.id()); d.Caller != "high" || d.Priority != 10 {
		t.Errorf("caller %q of priority %d, want high and 10", d.Caller, d.Priority)
	}
	up.expect(t, 1)
}

// answerTo sends a beginning of a request as it is written, and returns the
// answer that comes before the rest.
func (st *site) answerTo(text string) *reply {
	st.t.Helper()
	conn := st.dial()
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(soon)); err != nil {
		st.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		st.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		st.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		st.t.Fatal(err)
	}
	return &reply{Response: resp, body: string(body)}
}

func TestLargeBodyIsRefusedBeforeItIsRead_B75(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up) + "max_body 1KiB\n"})
	post := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
	r := st.answerTo(post + "Expect: 100-continue\r\nContent-Length: 2000000\r\n\r\n")
	r.expectRefusal(t, http.StatusRequestEntityTooLarge, "body_too_large")
	if !strings.Contains(r.body, "the limit of 1024 bytes") {
		t.Errorf("body %q does not name the limit", r.body)
	}
	chunk := "400\r\n" + strings.Repeat(" ", 0x400) + "\r\n"
	r = st.answerTo(post + "Transfer-Encoding: chunked\r\n\r\n" + chunk + chunk)
	r.expectRefusal(t, http.StatusRequestEntityTooLarge, "body_too_large")
	st.ask(chatBody[:len(chatBody)-1]+strings.Repeat(" ", 1024-len(chatBody))+"}", http.StatusOK) // the limit is inclusive
	up.expect(t, 1)
}

// Who waits for a 100 before it sends its body gets the refusal instead.
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up) + callers})
	post := func(path, fields string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 20\r\n" + fields + "\r\n"
	}
	st.answerTo(post("/nowhere", "")).expectRefusal(t, http.StatusNotFound, "unknown_route")
	st.answerTo(post(chatPath, "")).expectRefusal(t, http.StatusUnauthorized, "unknown_caller")
	st.answerTo(post(chatPath, "X-Api-Key: "+secret3+"\r\nContent-Encoding: br\r\n")).
		expectRefusal(t, http.StatusUnsupportedMediaType, "unknown_encoding")
}

// compressed returns text in an encoding.
func compressed(t *testing.T, encoding, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch encoding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zstd":
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestEncodedBodiesAreSentInPlain_B77(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	long := `{"model":"m","x":"` + strings.Repeat("long ", 8000) + `"}`
	for _, c := range []struct{ encoding, body, sent string }{
		{"gzip", chatBody, compressed(t, "gzip", chatBody)},
		{"GZIP", chatBody, compressed(t, "gzip", chatBody)},
		{"x-gzip", long, compressed(t, "gzip", long)},
		{"gzip", chatBody, compressed(t, "gzip", chatBody[:9]) + compressed(t, "gzip", chatBody[9:])},
		{"zstd", chatBody, compressed(t, "zstd", chatBody)},
		{"zstd", long, compressed(t, "zstd", long)},
		{"Identity", chatBody, chatBody},
	} {
		n := len(up.seen())
		st.ask(c.sent, http.StatusOK, header("Content-Encoding", c.encoding))
		h := up.expect(t, n+1)[n]
		if h.body != c.body || h.Header.Get("Content-Encoding") != "" || h.ContentLength != int64(len(c.body)) {
			t.Errorf("%s: the provider got %d bytes in encoding %q, want %d in plain", c.encoding, len(h.body), h.Header.Get("Content-Encoding"), len(c.body))
		}
	}
}

func TestBodiesThatCannotBeDecodedAreRefused_B77(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up) + "max_body 64KiB\n"})
	bomb := `{"model":"m","x":"` + strings.Repeat(" ", 30<<20) + `"}`
	for name, c := range map[string]struct {
		encoding, sent string
		status         int
		code           string
	}{
		"other encoding": {"br", chatBody, 415, "unknown_encoding"},
		"two encodings":  {"gzip, zstd", chatBody, 415, "unknown_encoding"},
		"no gzip":        {"gzip", chatBody, 400, "bad_request"},
		"no zstd":        {"zstd", chatBody, 400, "bad_request"},
		"cut gzip":       {"gzip", compressed(t, "gzip", chatBody)[:30], 400, "bad_request"},
		"cut zstd":       {"zstd", compressed(t, "zstd", chatBody)[:30], 400, "bad_request"},
		"empty":          {"gzip", "", 400, "bad_request"},
		"gzip bomb":      {"gzip", compressed(t, "gzip", bomb), 413, "body_too_large"},
		"zstd bomb":      {"zstd", compressed(t, "zstd", bomb), 413, "body_too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			r := st.ask(c.sent, c.status, header("Content-Encoding", c.encoding))
			r.expectRefusal(t, c.status, c.code)
			if got := r.Header.Get("Accept-Encoding"); (c.status == http.StatusUnsupportedMediaType) != (got == "gzip, zstd") {
				t.Errorf("Accept-Encoding %q", got)
			}
		})
	}
	up.expect(t, 0)
}

// The places of callers who are still sending stay free.
func TestNothingIsDecidedBeforeTheBodyIsThere(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up)})
	conn := st.dial()
	defer func() { _ = conn.Close() }()
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(chatBody), chatBody[:20])
	if err != nil {
		t.Fatal(err)
	}
	st.ask(chatBody, http.StatusOK)
	st.await(0, 0)
	if err := conn.Close(); err != nil { // in the middle of the body
		t.Fatal(err)
	}
	eventually(t, func() error {
		for _, d := range st.decisions() {
			if d.Refusal == "bad_request" && len(d.Selections) == 0 {
				return nil
			}
		}
		return fmt.Errorf("no record of the body that was cut")
	})
	up.expect(t, 1)
}

func TestHTTP2ClientsAreServed(t *testing.T) {
	up := newUpstream(t, chats(), streams(streamAnswer))
	st := serve(t, setup{usher: up.provider() + model(up)})
	st.speakHTTP2()
	if r := st.ask(chatBody, http.StatusOK); r.ProtoMajor != 2 || r.body != chatAnswer {
		t.Errorf("%s %q", r.Proto, r.body)
	}
	if r := st.ask(streamBody, http.StatusOK); r.ProtoMajor != 2 || r.body != streamAnswer {
		t.Errorf("%s %q", r.Proto, r.body)
	}
	if got := up.expect(t, 2)[0]; got.Proto != "HTTP/1.1" || got.body != chatBody {
		t.Errorf("the provider got %s %q", got.Proto, got.body)
	}
}

func TestOperationsGoToTheirOwnPaths(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	for _, path := range []string{
		"/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/moderations", "/v1/images/generations", "/v1/audio/speech",
	} {
		n := len(up.seen())
		if r := st.do(http.MethodPost, path, `{"model":"m"}`); r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", path, r.Status, r.body)
		}
		if h := up.expect(t, n+1)[n]; h.URL.Path != path {
			t.Errorf("%s went to %s", path, h.URL.Path)
		}
	}
}

func TestConnectionsToProvidersAreUsedAgain(t *testing.T) {
	up := newUpstream(t, breaks(), chats(), limited(), chats())
	connections := map[string]bool{}
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up)})
	st.ask(chatBody, http.StatusOK)
	st.ask(chatBody, http.StatusOK)
	for _, h := range up.expect(t, 4) {
		connections[h.RemoteAddr] = true
	}
	if len(connections) != 1 {
		t.Errorf("%d connections for requests that follow each other", len(connections))
	}
}

package caddymodule_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/usherproxy/usher/policy"
)

const transcriptions = "/v1/audio/transcriptions"

// transcription is a form with a file of the given content before the model.
func transcription(model, content string) string {
	return "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n" + content +
		"\r\n--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n" + model + "\r\n--x--\r\n"
}

var isForm = header("Content-Type", "multipart/form-data; boundary=x")

// The file comes first, the first candidate fails after it has read all, and
// the second one gets the same bytes, but for the model that it knows under
// another name.
func TestFormsFailOverWithTheirFiles_B73(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	const answer = `{"text":"Hi","usage":{"type":"tokens","input_tokens":3,"output_tokens":2,"total_tokens":5}}`
	up := newUpstream(t, breaks(), answers(http.StatusOK, answer))
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + callers +
		"model m {\nserve " + up.name + " whisper/1\n}\n"})
	sound := strings.Repeat("\x00\xff\r\n--y", 12<<20/8)
	r := st.do(http.MethodPost, transcriptions, transcription("m", sound), isForm, bearer(secret3))
	if r.StatusCode != http.StatusOK || r.body != answer {
		t.Errorf("%s %s\n%s", r.Status, r.body, st.explain(r.id()))
	}
	st.expectAttempts(r, "k1 500 upstream_error", "k2 200 ok")
	if u := st.decision(r.id()).Attempts[1].Usage; u == nil || u.InputTokens != 3 || u.OutputTokens != 2 {
		t.Errorf("usage %+v, want 3 + 2", u)
	}
	want := transcription("whisper/1", sound)
	for i, h := range up.expect(t, 2) {
		if h.body != want || h.ContentLength != int64(len(want)) || h.err != nil {
			t.Errorf("attempt %d: %d bytes of %d, %v", i+1, len(h.body), h.ContentLength, h.err)
		}
		if got := h.Header.Get("Content-Type"); got != "multipart/form-data; boundary=x" {
			t.Errorf("attempt %d: Content-Type %q", i+1, got)
		}
	}
	noFilesLeft(t)
}

// noFilesLeft checks that no body is held in a file any more: none has a name,
// and, where the system tells, none is open.
func noFilesLeft(t *testing.T) {
	t.Helper()
	named, err := filepath.Glob(filepath.Join(os.TempDir(), "usher-body-*"))
	if err != nil || len(named) > 0 {
		t.Errorf("temporary files %v, %v", named, err)
	}
	eventually(t, func() error {
		open, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			return err
		}
		for _, fd := range open {
			if name, err := os.Readlink(fd); err == nil && strings.Contains(name, "usher-body-") {
				return fmt.Errorf("%s is open", name)
			}
		}
		return nil
	})
}

// A caller who leaves takes the file along, wherever the request stands.
func TestFileOfABodyGoesWithItsCaller(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	g := newGate(t)
	up := newUpstream(t, g.then(chats()))
	st := serve(t, setup{usher: up.provider() + model(up)})
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := st.send(http.MethodPost, transcriptions, transcription("m", strings.Repeat("x", 2<<20)), isForm, within(ctx))
		done <- err
	}()
	after(t, g.arrived, "the request")
	leave()
	if err := after(t, done, "the end"); err == nil {
		t.Error("the caller got an answer")
	}
	st.await(0, 0)
	noFilesLeft(t)
}

func TestFormsWithoutAModelAreRefused(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	for _, c := range []struct {
		body   string
		status int
		code   string
	}{
		{"--x--\r\n", http.StatusBadRequest, "bad_request"},
		{transcription("other", ""), http.StatusNotFound, "model_not_found"},
	} {
		r := st.do(http.MethodPost, transcriptions, c.body, isForm)
		r.expectRefusal(t, c.status, c.code)
	}
	up.expect(t, 0)
}

func TestNoRoomForALargeBody(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	t.Setenv("TMPDIR", t.TempDir()+"/missing")
	st.ask(chatBody, http.StatusOK)
	r := st.ask(strings.Replace(chatBody, "Hello", strings.Repeat("x", 2<<20), 1), http.StatusServiceUnavailable)
	r.expectRefusal(t, http.StatusServiceUnavailable, "no_room")
	if d := st.decision(r.id()); d.Disposition != policy.Denied {
		t.Errorf("disposition %s", d.Disposition)
	}
	up.expect(t, 1)
}

// A large body of JSON is scanned and sent from its file.
func TestLargeJSONIsSentAsItIs(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + "model m {\nserve " + up.name + " long/1\n}\n"})
	body := `{"messages":"` + strings.Repeat("é", 2<<20) + `", "seed":9007199254740993 ,"model" : "m"}`
	r := st.ask(body, http.StatusOK)
	if h := up.expect(t, 1)[0]; h.body != strings.Replace(body, `"m"`, `"long/1"`, 1) {
		t.Errorf("%d bytes arrived\n%s", len(h.body), st.explain(r.id()))
	}
}

// chunks gives the same chunk again and again.
type chunks struct {
	chunk string
	left  int
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.chunk[:min(len(c.chunk), c.left)])
	c.left -= n
	return n, nil
}

// heap returns how much of the heap is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// The client, Usher and the provider are all in this process.
func TestUploadOf100MBKeepsMemoryFlat(t *testing.T) {
	const size = 100_000_000
	sizes := make(chan uint64, 2)
	sums := make(chan string, 1)
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		_, _ = io.CopyN(sum, r.Body, size/2)
		sizes <- heap()
		_, _ = io.Copy(sum, r.Body)
		sizes <- heap()
		sums <- hex.EncodeToString(sum.Sum(nil))
		answers(http.StatusOK, `{"text":"Hi"}`)(w, r)
	}))
	defer provider.Close()
	st := serve(t, setup{usher: "provider flat " + provider.URL + " {\n" + key(1) + "}\nmodel m flat\n"})
	<-st.begin(chatBody) // fills pools
	<-sizes
	<-sizes
	<-sums
	before := heap()

	head, tail, _ := strings.Cut(transcription("m", "§"), "§")
	sum := sha256.New()
	body := io.TeeReader(io.MultiReader(strings.NewReader(head), &chunks{strings.Repeat("0123456789", 1000), size}, strings.NewReader(tail)), sum)
	r := st.do(http.MethodPost, transcriptions, "", isForm, func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(body), int64(len(head)+size+len(tail))
	})
	if r.StatusCode != http.StatusOK {
		t.Fatalf("%s %s\n%s", r.Status, r.body, st.explain(r.id()))
	}
	if got, want := <-sums, hex.EncodeToString(sum.Sum(nil)); got != want {
		t.Errorf("the provider got %s, want %s", got, want)
	}
	for _, when := range []string{"in the middle", "at the end"} {
		grown := int64(<-sizes) - int64(before)
		t.Logf("%s of %d bytes the heap had grown by %d KiB", when, size, grown>>10)
		if grown > 8<<20 {
			t.Errorf("%s the heap had grown by %d bytes", when, grown)
		}
	}
}

func TestAzuresCallersAreServed_B79(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + callers + "model dep-1 {\nserve " + up.name + " gpt-4o\n}\n"})
	for _, c := range []struct{ path, body, wantURI, wantBody string }{
		{"/openai/deployments/dep-1/chat/completions?api-version=2024-10-21&x=%31", `{"n":1}`, "/v1/chat/completions?x=%31", `{"model":"gpt-4o","n":1}`},
		{"/openai/deployments/dep-1/embeddings?api-version=2024-10-21", `{"model":"other"}`, "/v1/embeddings", `{"model":"gpt-4o"}`},
		{"/openai/v1/chat/completions?api-version=preview", `{"model":"dep-1"}`, "/v1/chat/completions", `{"model":"gpt-4o"}`},
		{"/openai/responses?api-version=2025-04-01-preview", `{"model":"dep-1"}`, "/v1/responses", `{"model":"gpt-4o"}`},
		{"/v1/chat/completions?api-version=kept", `{"model":"dep-1"}`, "/v1/chat/completions?api-version=kept", `{"model":"gpt-4o"}`},
	} {
		n := len(up.seen())
		r := st.do(http.MethodPost, c.path, c.body, header("Api-Key", secret3))
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", c.path, r.Status, r.body)
			continue
		}
		h := up.expect(t, n+1)[n]
		if h.RequestURI != c.wantURI || h.body != c.wantBody || h.Header.Get("Api-Key") != "" {
			t.Errorf("%s became %s %s, want %s %s", c.path, h.RequestURI, h.body, c.wantURI, c.wantBody)
		}
	}
	r := st.do(http.MethodPost, "/openai/deployments/other/chat/completions", `{}`, header("Api-Key", secret3))
	r.expectRefusal(t, http.StatusNotFound, "model_not_found")
}

// What a path says never leaves its place in it: whoever tries is refused, with
// no lease and no attempt.
func TestOddPathsReachNobody_B79_B80(t *testing.T) {
	openai, gemini := newUpstream(t, chats()), newUpstream(t, answers(http.StatusOK, geminiAnswer))
	st := serve(t, setup{usher: openai.provider("api_version 2024-10-21") + gemini.provider("format gemini") + model(openai, gemini) +
		"model a/b " + openai.name + "\n"})
	for path, want := range map[string]string{
		"/openai/deployments/../../admin/chat/completions":                          "400",
		"/openai/deployments/%2e%2e/chat/completions":                               "400",
		"/openai/deployments/%2e%2e%2f%2e%2e%2fadmin/chat/completions":              "400",
		"/openai/deployments/..%5cadmin/chat/completions":                           "404",
		"/openai/deployments/m%3Fx=1%23y/chat/completions":                          "404",
		"/openai/deployments/m/x/chat/completions":                                  "404",
		"/v1beta/models/../../admin:generateContent":                                "400",
		"/v1beta/models/m:generateContent:generateContent":                          "404",
		"/v1beta/tunedModels/m:generateContent":                                     "404",
		"/v1/projects/p/locations/l/publishers/google/models/m:generateContent":     "404",
		"/v1/models/" + strings.Repeat("m", 9000) + ":generateContent":              "400",
		"/openai/deployments/m/chat/completions/../../../../admin":                  "404",
		"/openai/deployments/a%2Fb/chat/completions":                                "200 /openai/deployments/a%2Fb/chat/completions?api-version=2024-10-21",
		"/openai/deployments/m/chat/completions?api-version=2025-01-01&q=%2e%2e%2f": "200 /openai/deployments/m/chat/completions?api-version=2025-01-01&q=%2e%2e%2f",
		"/v1beta/models/m%3AgenerateContent":                                        "200 /v1beta/models/m%3AgenerateContent",
		"/v1beta/models/m:streamGenerateContent?alt=sse":                            "200 /v1beta/models/m:streamGenerateContent?alt=sse",
	} {
		t.Run(path[:min(len(path), 70)], func(t *testing.T) {
			before := len(openai.seen()) + len(gemini.seen())
			answer := st.raw("POST " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
			status := answer[len("HTTP/1.1 "):][:3]
			hits := append(openai.seen(), gemini.seen()...)
			if got, uri, _ := strings.Cut(want, " "); uri == "" {
				if status != got || len(hits) != before {
					t.Errorf("%s, and the providers got %d requests; want %s and none", status, len(hits)-before, want)
				}
			} else if !slices.ContainsFunc(hits, func(h *hit) bool { return h.RequestURI == uri }) || status != got {
				t.Errorf("%s, want %s", answer, want)
			}
		})
	}
	for _, d := range st.decisions() {
		if d.Status != http.StatusOK && len(d.Admissions)+len(d.Attempts) > 0 {
			t.Errorf("a request that was refused had a lease: %+v", d)
		}
	}
}

func TestAzureAsAProvider(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider("api_version 2024-10-21") + callers + "model m {\nserve " + up.name + " dep/1\n}\n"})
	for _, c := range []struct{ path, body, wantURI string }{
		{chatPath, `{"model":"m"}`, "/openai/deployments/dep%2F1/chat/completions?api-version=2024-10-21"},
		{chatPath + "?x=1", `{"model":"m"}`, "/openai/deployments/dep%2F1/chat/completions?x=1&api-version=2024-10-21"},
		{"/openai/deployments/m/chat/completions?api-version=2025-01-01", `{"model":"m"}`, "/openai/deployments/dep%2F1/chat/completions?api-version=2025-01-01"},
		{"/v1/responses", `{"model":"m"}`, "/openai/responses?api-version=2024-10-21"},
		{"/openai/responses?api-version=2025-04-01-preview", `{"model":"m"}`, "/openai/responses?api-version=2025-04-01-preview"},
	} {
		n := len(up.seen())
		r := st.do(http.MethodPost, c.path, c.body, header("Api-Key", secret3))
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", c.path, r.Status, r.body)
			continue
		}
		h := up.expect(t, n+1)[n]
		if h.RequestURI != c.wantURI || h.body != `{"model":"dep/1"}` || h.Header.Get("Api-Key") != secret1 || h.Header.Get("Authorization") != "" {
			t.Errorf("%s became %s %s with %v, want %s", c.path, h.RequestURI, h.body, h.Header, c.wantURI)
		}
	}
}

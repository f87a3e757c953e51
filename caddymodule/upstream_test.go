package caddymodule_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/usherproxy/usher/internal/freeport"
)

// An upstream is a provider that answers as its test says, and remembers what
// it was sent.
type upstream struct {
	*httptest.Server
	name string

	mu      sync.Mutex
	hits    []*hit
	answers []http.HandlerFunc
}

// A hit is one request as it reached an upstream.
type hit struct {
	*http.Request
	body string
	err  error
}

var upstreams atomic.Int64

// newUpstream serves an upstream that gives each request the next answer, and
// the last one to all others. Its name is new, so that no policy has learned
// anything of it.
func newUpstream(t *testing.T, answers ...http.HandlerFunc) *upstream {
	t.Helper()
	u := &upstream{name: fmt.Sprintf("p%d", upstreams.Add(1)), answers: answers}
	u.Server = httptest.NewServer(http.HandlerFunc(u.serve))
	t.Cleanup(func() {
		u.CloseClientConnections()
		u.Close()
	})
	return u
}

// newAbsent returns an upstream at an address where nobody listens.
func newAbsent(t *testing.T) *upstream {
	t.Helper()
	u := newUpstream(t, chats())
	u.URL = fmt.Sprintf("http://127.0.0.1:%d", freeport.ForTest(t))
	return u
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	u.mu.Lock()
	u.hits = append(u.hits, &hit{r, string(body), err})
	answer := u.answers[0]
	if len(u.answers) > 1 {
		u.answers = u.answers[1:]
	}
	u.mu.Unlock()
	answer(w, r)
}

// seen returns the requests that have come so far.
func (u *upstream) seen() []*hit {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]*hit(nil), u.hits...)
}

// expect checks how many requests have come, and returns them.
func (u *upstream) expect(t *testing.T, n int) []*hit {
	t.Helper()
	hits := u.seen()
	if len(hits) != n {
		t.Fatalf("upstream %s got %d requests, want %d", u.name, len(hits), n)
	}
	return hits
}

// provider is the block of u in a Caddyfile, with the key k1 and more lines.
func (u *upstream) provider(more ...string) string { return u.providerOf(key(1), more...) }

// providerOf is the block of u with other keys.
func (u *upstream) providerOf(keys string, more ...string) string {
	return fmt.Sprintf("provider %s %s {\n%s\n%s\n}\n", u.name, u.URL, keys, strings.Join(more, "\n"))
}

// key is a key kN with the secret N.
func key(n int, more ...string) string {
	block := ""
	if len(more) > 0 {
		block = " {\n" + strings.Join(more, "\n") + "\n}"
	}
	return fmt.Sprintf("key k%d {env.TEST_KEY_%[1]d}%s\n", n, block)
}

// inOrder lets keys be tried in the order of the configuration.
const inOrder = "select keys {\norder priority\n}\n"

// model lets the upstreams serve the model m.
func model(ups ...*upstream) string {
	var b strings.Builder
	for _, u := range ups {
		fmt.Fprintf(&b, "serve %s\n", u.name)
	}
	return "model m {\n" + b.String() + "}\n"
}

// chatAnswer is a whole answer to a chat, of 3 + 2 tokens.
const chatAnswer = `{"id":"c1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`

// streamAnswer is the same as a stream.
const streamAnswer = `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}

data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"id":"c1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}

data: [DONE]

`

// answers replies with a status, a body of JSON, and pairs of header fields.
func answers(status int, body string, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(fields); i += 2 {
			w.Header().Add(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // whoever does not read it has left
	}
}

// chats answers a chat well.
func chats(fields ...string) http.HandlerFunc { return answers(http.StatusOK, chatAnswer, fields...) }

// failure is the body of an error.
func failure(kind, code string) string {
	return fmt.Sprintf(`{"error":{"message":"told by the provider","type":%q,"param":null,"code":%q}}`, kind, code)
}

// limited refuses for a rate limit.
func limited(fields ...string) http.HandlerFunc {
	return answers(http.StatusTooManyRequests, failure("rate_limit_error", "rate_limit_exceeded"), fields...)
}

// breaks fails.
func breaks() http.HandlerFunc {
	return answers(http.StatusInternalServerError, failure("server_error", ""))
}

// streams sends pieces of a stream, each when it is asked to.
func streams(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// A gate holds answers back until it is opened.
type gate struct {
	arrived chan struct{} // one for each request
	left    chan struct{} // one for each caller who left before
	opened  chan struct{}
	once    sync.Once
}

func newGate(t *testing.T) *gate {
	g := &gate{arrived: make(chan struct{}, 100), left: make(chan struct{}, 100), opened: make(chan struct{})}
	t.Cleanup(g.open)
	return g
}

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

// then is answer behind the gate.
func (g *gate) then(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g.arrived <- struct{}{}
		select {
		case <-g.opened:
			answer(w, r)
		case <-r.Context().Done():
			g.left <- struct{}{}
		}
	}
}

// flows sends a first piece, and the rest when the gate is opened.
func (g *gate) flows(first, rest string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		streams(first)(w, r)
		g.then(streams(rest))(w, r)
	}
}

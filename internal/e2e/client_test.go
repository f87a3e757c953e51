package e2e_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"
)

// client sends requests. Its methods may be called from any goroutine.
type client struct {
	url, key string
	http     *http.Client
}

func newClient(url string) *client {
	return &client{url: url, key: "sk-e2e-caller", http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 200},
	}}
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	events int  // of a stream
	whole  bool // the stream came to its end
	err    error
}

// ok returns an error if the answer is not a whole stream.
func (a answer) ok() error {
	switch {
	case a.err != nil:
		return fmt.Errorf("after %d events: %w", a.events, a.err)
	case a.status != http.StatusOK:
		return fmt.Errorf("status %d: %.500s", a.status, a.body)
	case !a.whole:
		return fmt.Errorf("the stream ended early after %d events: %.500s", a.events, a.body)
	}
	return nil
}

// ask is a chat request.
type ask struct {
	tag    string // finds the request in the counts of a provider
	tokens int    // length of the answer; 0 leaves it to the provider
	whole  bool   // not streamed
	model  string // default: gpt-4o
	text   string // default: Hello
	header http.Header
	sent   func() // called when the request has been sent
}

func (a ask) body() []byte {
	fields := map[string]any{
		"model":    "gpt-4o",
		"stream":   !a.whole,
		"messages": []any{map[string]string{"role": "user", "content": cmp.Or(a.text, "Hello") + " #tag=" + a.tag}},
	}
	if a.model != "" {
		fields["model"] = a.model
	}
	if a.tokens > 0 {
		fields["max_tokens"] = a.tokens
	}
	b, _ := json.Marshal(fields) // such fields always marshal
	return b
}

// chat sends a chat request and reads the answer to its end.
func (c *client) chat(ctx context.Context, a ask) (got answer) {
	if a.sent != nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { a.sent() },
		})
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/chat/completions", strings.NewReader(string(a.body())))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	maps.Copy(req.Header, a.header)
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	got.status, got.header = resp.StatusCode, resp.Header
	var body strings.Builder
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		got.err = got.readEvents(io.TeeReader(resp.Body, &body))
	} else {
		_, got.err = io.Copy(&body, resp.Body)
		got.whole = a.whole && got.err == nil
	}
	got.body = body.String()
	return got
}

func (a *answer) readEvents(r io.Reader) error {
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok {
			continue
		}
		a.events++
		a.whole = data == "[DONE]"
	}
	return sc.Err()
}

// pending is a request on its way.
type pending struct {
	leave  context.CancelFunc
	result chan answer
}

// begin sends a request, and returns when it has been sent. It leaves when the
// test ends.
func (c *client) begin(t *testing.T, a ask) *pending {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &pending{leave: cancel, result: make(chan answer, 1)}
	sent := make(chan struct{})
	a.sent = sync.OnceFunc(func() { close(sent) }) // a request may be sent again on a new connection
	go func() { p.result <- c.chat(ctx, a) }()
	t.Cleanup(cancel)
	select {
	case <-sent:
	case got := <-p.result:
		t.Fatalf("request %s: %v", a.tag, got.ok())
	case <-time.After(startTimeout):
		t.Fatalf("request %s could not be sent", a.tag)
	}
	return p
}

// wait returns the answer.
func (p *pending) wait(t *testing.T, within time.Duration) answer {
	t.Helper()
	select {
	case a := <-p.result:
		return a
	case <-time.After(within):
		t.Fatalf("no answer within %v", within)
		return answer{}
	}
}

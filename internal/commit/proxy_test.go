package commit_test

import (
	"bufio"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/internal/commit"
	"github.com/usherproxy/usher/policy"
)

// proxy returns a server that asks the providers one after the other, until
// the gate commits an answer. Each opening is sent to seen.
func proxy(t *testing.T, g commit.Gate, providers ...http.HandlerFunc) (site *httptest.Server, seen chan commit.Opening) {
	t.Helper()
	return proxyThatTells(t, func() {}, g, providers...)
}

// proxyThatTells is a proxy that calls answered when a provider has answered,
// before the gate.
func proxyThatTells(t *testing.T, answered func(), g commit.Gate, providers ...http.HandlerFunc) (site *httptest.Server, seen chan commit.Opening) {
	t.Helper()
	f := &failover{t: t, answered: answered, gate: g, seen: make(chan commit.Opening, len(providers))}
	for _, p := range providers {
		server := httptest.NewServer(p)
		t.Cleanup(server.Close) // which waits for the handlers, and so shows that nothing is left
		u, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		f.providers = append(f.providers, u)
	}
	f.transport = &http.Transport{}
	t.Cleanup(f.transport.CloseIdleConnections)
	site = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(*httputil.ProxyRequest) {}, Transport: f, ErrorLog: log.New(io.Discard, "", 0),
	})
	t.Cleanup(site.Close)
	return site, f.seen
}

// A failover is a transport like the one that the gate is made for.
type failover struct {
	t         *testing.T
	answered  func()
	gate      commit.Gate
	providers []*url.URL
	transport *http.Transport
	seen      chan commit.Opening
}

func (f *failover) RoundTrip(out *http.Request) (resp *http.Response, err error) {
	for _, p := range f.providers {
		req := out.Clone(out.Context())
		req.URL.Scheme, req.URL.Host = p.Scheme, p.Host
		if resp, err = f.transport.RoundTrip(req); err != nil {
			return nil, err
		}
		f.answered()
		o := f.gate.Hold(out.Context(), chat(f.t), resp, true)
		f.seen <- o
		if !o.Disposition.Failover() {
			return resp, nil
		}
		if err := resp.Body.Close(); err != nil {
			f.t.Error(err)
		}
	}
	return nil, http.ErrAbortHandler
}

// stream writes pieces as events of a stream, each at once.
func stream(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		for _, p := range pieces {
			send(w, p)
		}
	}
}

func begin(w http.ResponseWriter) {
	w.Header().Set("Content-Type", events)
	send(w, "")
}

func send(w http.ResponseWriter, text string) {
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

// get asks the site, and gives up with the test.
func get(t *testing.T, site *httptest.Server) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestAnAnswerThatFailedIsReplaced(t *testing.T) {
	t.Parallel()
	cut := func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		send(w, role)
		panic(http.ErrAbortHandler)
	}
	healthy := fixture(t, "no_done.sse")
	for name, c := range map[string]struct {
		first http.HandlerFunc
		want  policy.Disposition
	}{
		"overloaded":     {stream(fixture(t, "anthropic_first_event_error.sse")), policy.Overloaded},
		"nothing at all": {func(http.ResponseWriter, *http.Request) {}, policy.UpstreamError},
		"comments only":  {stream(ping, ping), policy.UpstreamError},
		"cut":            {cut, policy.UpstreamError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site, seen := proxy(t, gate, c.first, stream(healthy))
			got, err := io.ReadAll(get(t, site).Body)
			if err != nil || string(got) != healthy {
				t.Errorf("got %q, %v", got, err)
			}
			if o := <-seen; o.Disposition != c.want {
				t.Errorf("the first candidate ended with %s by %s, want %s", o.Disposition, o.Cause, c.want)
			}
			o := <-seen
			if u := o.Meter.Usage(); o.Disposition != policy.OK || u == nil || u.InputTokens != 3 || u.OutputTokens != 2 {
				t.Errorf("the second candidate: %s, usage %+v, want ok and 3/2", o.Disposition, u)
			}
		})
	}
}

func TestACutAfterTheCommitPointReachesTheCaller(t *testing.T) {
	t.Parallel()
	site, _ := proxy(t, gate, func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		send(w, role+text)
		panic(http.ErrAbortHandler)
	})
	if got, err := io.ReadAll(get(t, site).Body); err == nil || string(got) != role+text {
		t.Errorf("got %q, %v, want the content and an error", got, err)
	}
}

// The provider sends each piece only when the caller has seen the one before,
// so a piece that is held for longer than it must be stops the test.
func TestNothingIsHeldAfterTheCommitPoint(t *testing.T) {
	t.Parallel()
	patient := commit.Gate{MaxBytes: commit.DefaultMaxBytes, MaxWait: time.Hour}
	impatient := commit.Gate{MaxBytes: commit.DefaultMaxBytes, MaxWait: 50 * time.Millisecond}
	for name, c := range map[string]struct {
		gate   commit.Gate
		pieces []string
	}{
		"content":                  {patient, []string{role + text, ping, text[:44], text[44:], end}},
		"a header and silence":     {impatient, []string{"", ping, role, text, end}},
		"pings":                    {impatient, []string{ping, ping, text, end}},
		"half a character at last": {impatient, []string{text[:41], text[41:]}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{})
			site, _ := proxy(t, c.gate, func(w http.ResponseWriter, r *http.Request) {
				begin(w)
				for _, p := range c.pieces {
					send(w, p)
					select {
					case <-next:
					case <-r.Context().Done():
						return
					}
				}
			})
			body := bufio.NewReader(get(t, site).Body)
			for _, p := range c.pieces {
				got := make([]byte, len(p))
				if _, err := io.ReadFull(body, got); err != nil || string(got) != p {
					t.Fatalf("got %q, %v, want %q", got, err, p)
				}
				next <- struct{}{}
			}
			if _, err := body.ReadByte(); err != io.EOF {
				t.Errorf("after the last piece: %v", err)
			}
		})
	}
}

func TestACallerWhoLeavesEndsTheAnswer(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	ctx, leave := context.WithCancel(t.Context())
	site, seen := proxyThatTells(t, leave, gate, func(w http.ResponseWriter, r *http.Request) {
		begin(w)
		send(w, role)
		<-r.Context().Done()
		close(left)
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, site.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		t.Errorf("got an answer of status %d", resp.StatusCode)
		_ = resp.Body.Close()
	}
	<-left
	if o := <-seen; o.Disposition != policy.ClientGone || o.Cause != commit.ContextDone {
		t.Errorf("got %+v", o)
	}
}

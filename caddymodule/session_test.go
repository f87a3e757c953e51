package caddymodule_test

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/usherproxy/usher/policy"
)

const (
	realtime = "/v1/realtime?model=m"
	// responseDone is how a turn of a session ends, of 3 + 2 tokens.
	responseDone = `{"type":"response.done","response":{"id":"r1","status":"completed","usage":{"total_tokens":5,"input_tokens":3,"output_tokens":2,"input_token_details":{"cached_tokens":1}}}}`
)

// converses answers each message of a session: by its own text, "turn" by the
// end of a response, and "bye" by closing with code and ending.
func converses(code websocket.StatusCode) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"realtime"}})
		if err != nil {
			return
		}
		defer func() { _ = conn.CloseNow() }()
		conn.SetReadLimit(1 << 20)
		for {
			kind, text, err := conn.Read(r.Context())
			switch {
			case err != nil:
				return
			case string(text) == "bye":
				_ = conn.Close(code, "")
				return
			case string(text) == "drop":
				return
			case string(text) == "turn":
				text = []byte(responseDone)
			}
			if conn.Write(r.Context(), kind, text) != nil {
				return
			}
		}
	}
}

// ws opens a session.
func (st *site) ws(path string, h http.Header, protocols ...string) (*websocket.Conn, *http.Response, error) {
	st.t.Helper()
	conn, resp, err := websocket.Dial(st.t.Context(), strings.Replace(st.url, "http", "ws", 1)+path, &websocket.DialOptions{
		HTTPHeader: h, Subprotocols: protocols, CompressionMode: websocket.CompressionContextTakeover,
	})
	if err == nil {
		st.t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, resp, err
}

// session is ws for sessions that begin.
func (st *site) session(path string, h http.Header, protocols ...string) (*websocket.Conn, *http.Response) {
	st.t.Helper()
	conn, resp, err := st.ws(path, h, protocols...)
	if err != nil {
		st.t.Fatal(err)
	}
	return conn, resp
}

// say sends a message and returns the answer.
func say(t *testing.T, conn *websocket.Conn, text string) string {
	t.Helper()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
	_, got, err := conn.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestSessionIsOneLeaseUntilItEnds_B146(t *testing.T) {
	up := newUpstream(t, converses(websocket.StatusNormalClosure))
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + "model m {\nserve " + up.name + " upstream-m\n}\n"})
	conn, resp := st.session(realtime+"&a=%20b", nil, "realtime")
	if resp.StatusCode != http.StatusSwitchingProtocols || conn.Subprotocol() != "realtime" || resp.Header.Get("X-Usher-Candidate") != up.name+"/k1/upstream-m" {
		t.Errorf("%s %q %v", resp.Status, conn.Subprotocol(), resp.Header)
	}
	st.await(1, 0)
	long := strings.Repeat("x", 70_000)
	conn.SetReadLimit(1 << 20)
	for _, text := range []string{"hello", "turn", long, "turn"} {
		want := strings.Replace(text, "turn", responseDone, 1)
		if got := say(t, conn, text); got != want {
			t.Errorf("%.20s is answered by %.60s", text, got)
		}
	}
	next := st.begin(`{"model":"m"}`) // which waits for the key
	st.await(1, 1)
	if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	after(t, next, "the next request")
	d := st.decision(resp.Header.Get("X-Usher-Request-Id"))
	if d.Disposition != policy.OK || d.Status != http.StatusSwitchingProtocols || d.Operation != "realtime" || len(d.Attempts) != 1 {
		t.Errorf("want ok:\n%s", st.explain(d.ID))
	}
	if u := d.Attempts[0].Usage; u == nil || u.InputTokens != 6 || u.OutputTokens != 4 {
		t.Errorf("usage %+v, want the sum of two turns", u)
	}
	h := up.seen()[0]
	if h.URL.RawQuery != "model=upstream-m&a=%20b" || h.Header.Get("Authorization") != "Bearer "+secret1 || h.Header.Get("Sec-Websocket-Extensions") != "" {
		t.Errorf("the provider got %s %v", h.URL, h.Header)
	}
}

func TestKeyAmongSubprotocolsStaysHere(t *testing.T) {
	up := newUpstream(t, converses(websocket.StatusNormalClosure))
	st := serve(t, setup{usher: up.provider() + model(up) + callers})
	conn, _ := st.session(realtime, nil, "realtime", "openai-insecure-api-key."+secret3, "openai-organization.org", "openai-project.p", "openai-beta.realtime-v1")
	if got := say(t, conn, "hello"); got != "hello" {
		t.Errorf("got %q", got)
	}
	h := up.expect(t, 1)[0].Header
	if got := h.Get("Sec-Websocket-Protocol"); got != "realtime, openai-beta.realtime-v1" || h.Get("Authorization") != "Bearer "+secret1 {
		t.Errorf("the provider got %v", h)
	}
	if strings.Contains(fmt.Sprint(h), secret3) {
		t.Errorf("the provider got the caller's key: %v", h)
	}
	_ = conn.CloseNow()
	st.await(0, 0)
	if d := st.last(); d.Disposition != policy.ClientGone || d.Caller != "low" {
		t.Errorf("decision %+v, want client_gone of low", d)
	}
}

// Whatever is wrong with a session is told before it begins, as plain HTTP.
func TestSessionsAreRefusedBeforeTheyBegin_B144(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()))
	st := serve(t, setup{usher: up.providerOf(key(2, "limit concurrency 1")) + model(up) + callers + "admit fifo {\nqueue_limit 1\n}\n"})
	as := http.Header{"Authorization": {"Bearer " + secret3}}
	holder := st.begin(chatBody, bearer(secret3))
	after(t, g.arrived, "the request that holds the key")
	waiter := st.begin(chatBody, bearer(secret3))
	st.await(1, 1)
	for name, c := range map[string]struct {
		path   string
		header http.Header
		status int
		reason string
	}{
		"no key":        {realtime, nil, 401, "unknown_caller"},
		"no model":      {"/v1/realtime", as, 400, "bad_request"},
		"two models":    {realtime + "&model=n", as, 400, "bad_request"},
		"unknown model": {"/v1/realtime?model=n", as, 404, "model_not_found"},
		"no room":       {realtime, as, 429, "queue_full"},
		"responses":     {"/v1/responses", as, 400, "bad_request"},
	} {
		_, resp, err := st.ws(c.path, c.header)
		if err == nil || resp == nil || resp.StatusCode != c.status || resp.Header.Get("X-Usher-Reason") != c.reason {
			t.Errorf("%s: %v, %+v, want %d %s", name, err, resp, c.status, c.reason)
		}
	}
	if r := st.do(http.MethodGet, realtime, "", bearer(secret3)); r.StatusCode != http.StatusNotFound {
		t.Errorf("without an upgrade: %s %s", r.Status, r.body)
	}
	if r := st.do(http.MethodGet, "/v1/responses", "", bearer(secret3)); r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("without an upgrade: %s %s", r.Status, r.body)
	}
	g.open()
	after(t, holder, "holder")
	after(t, waiter, "waiter")
	up.expect(t, 2)
}

func TestSessionsFailOverBeforeTheyBegin(t *testing.T) {
	for name, c := range map[string]struct {
		first http.HandlerFunc
		want  string
	}{
		"refused":   {limited("Retry-After", "1"), "k1 429 rate_limited"},
		"an error":  {breaks(), "k1 500 upstream_error"},
		"an answer": {chats(), "k1 200 upstream_error"},
		"dropped":   {drops, "k1 0 upstream_error"},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, c.first, converses(websocket.StatusNormalClosure))
			st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up)})
			conn, resp := st.session(realtime, nil)
			if got := say(t, conn, "hello"); got != "hello" {
				t.Errorf("got %q", got)
			}
			_ = conn.Close(websocket.StatusNormalClosure, "")
			st.expectAttempts(&reply{Response: resp}, c.want, "k2 101 ok")
		})
	}
}

// How a session ends decides what it counts as.
func TestEndsOfSessions_B146(t *testing.T) {
	for name, c := range map[string]struct {
		code    websocket.StatusCode
		text    string
		want    policy.Disposition
		timeout string
		option  string
	}{
		"closed":       {websocket.StatusNormalClosure, "bye", policy.OK, "", ""},
		"failed":       {websocket.StatusInternalError, "bye", policy.UpstreamError, "", ""},
		"try again":    {websocket.StatusTryAgainLater, "bye", policy.Overloaded, "", ""},
		"not allowed":  {websocket.StatusPolicyViolation, "bye", policy.ClientFault, "", ""},
		"dropped":      {websocket.StatusBadGateway, "drop", policy.UpstreamError, "", ""},
		"nothing said": {websocket.StatusGoingAway, "", policy.OK, "session_idle", "session {\nidle 200ms\n}\n"},
		"too old":      {websocket.StatusGoingAway, "", policy.OK, "session_age", "session {\nage 2s\n}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, converses(c.code))
			st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up) + c.option})
			conn, resp := st.session(realtime, nil)
			if c.text != "" {
				if err := conn.Write(t.Context(), websocket.MessageText, []byte(c.text)); err != nil {
					t.Error(err)
				}
			}
			if _, text, err := conn.Read(t.Context()); err == nil {
				t.Errorf("got %q", text)
			} else if websocket.CloseStatus(err) != c.code {
				t.Errorf("closed by %v, want %d", err, c.code)
			}
			d := st.decision(resp.Header.Get("X-Usher-Request-Id"))
			if d.Disposition != c.want || len(d.Attempts) != 1 || d.Attempts[0].Timeout != c.timeout {
				t.Errorf("want %s %s:\n%s", c.want, c.timeout, st.explain(d.ID))
			}
			st.await(0, 0)
		})
	}
}

// Nothing is put into a frame that the provider did not end.
func TestSessionThatBreaksWithinAFrame(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		accept := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		_, _ = brw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
			base64.StdEncoding.EncodeToString(accept[:]) + "\r\n\r\n\x81\x05hel")
		_ = brw.Flush()
	})
	st := serve(t, setup{usher: up.provider() + model(up)})
	conn, resp := st.session(realtime, nil)
	if _, text, err := conn.Read(t.Context()); err == nil || websocket.CloseStatus(err) != -1 {
		t.Errorf("got %q and %v, want a broken connection", text, err)
	}
	if d := st.decision(resp.Header.Get("X-Usher-Request-Id")); d.Disposition != policy.UpstreamError {
		t.Errorf("disposition %s", d.Disposition)
	}
}

// A reload ends no session.
func TestSessionOutlivesAReload_B99(t *testing.T) {
	up := newUpstream(t, converses(websocket.StatusNormalClosure))
	s := setup{usher: up.provider() + model(up)}
	st := serve(t, s)
	conn, resp := st.session(realtime, nil)
	if err := st.load(setup{usher: s.usher + "attempts 2\n"}); err != nil {
		t.Fatal(err)
	}
	if got := say(t, conn, "hello"); got != "hello" {
		t.Errorf("got %q", got)
	}
	if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	if d := st.decision(resp.Header.Get("X-Usher-Request-Id")); d.Disposition != policy.OK {
		t.Errorf("disposition %s", d.Disposition)
	}
}

// The Responses API names its models inside the session.
func TestSessionWithoutAModelHasThatOfTheSite(t *testing.T) {
	up := newUpstream(t, converses(websocket.StatusNormalClosure))
	st := serve(t, setup{usher: up.provider() + model(up) + "session {\nmodel m\n}\n"})
	conn, _ := st.session("/v1/responses", nil)
	if got := say(t, conn, `{"type":"response.create","model":"m"}`); !strings.Contains(got, "response.create") {
		t.Errorf("got %q", got)
	}
	if got := up.expect(t, 1)[0].RequestURI; got != "/v1/responses" {
		t.Errorf("asked %s", got)
	}
}

// The caller leaves while its session waits for a place.
func TestSessionThatWaitsEndsWithItsCaller(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()))
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up)})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request that holds the key")
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan error, 1)
	go func() {
		_, _, err := websocket.Dial(ctx, strings.Replace(st.url, "http", "ws", 1)+realtime, nil)
		ended <- err
	}()
	st.await(1, 1)
	leave()
	if err := after(t, ended, "the end"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	st.await(1, 0)
	g.open()
	after(t, holder, "holder")
	up.expect(t, 1)
}

package caddymodule_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// The format of the access log hides what Caddy itself shows.
func TestLogFormatHidesCredentials_B91(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{
		usher: up.provider() + model(up) + callers, format: "\nformat usher {\nrequest>headers>X-Team delete\n}",
	})
	for i, o := range [][]option{
		{header("X-Api-Key", secret3)},
		{header("api-key", secret3)},
		{header("X-GOOG-API-KEY", secret3), header("X-Team", "blue")},
		{bearer(secret3), header("Sec-WebSocket-Protocol", "realtime, openai-insecure-api-key."+secret3)},
		{func(r *http.Request) { r.URL.RawQuery = "a=%gh&key=" + secret3 + "&b=2" }, bearer(secret3)},
		{func(r *http.Request) { r.URL.RawQuery = "%6bey=" + secret3 + "&b=2;key=" + secret3 }, bearer(secret3)},
	} {
		st.ask(chatBody, http.StatusOK, o...)
		st.do(http.MethodPost, chatPath, fmt.Sprint(i), o...) // one that is refused
	}
	text := st.log()
	if n := strings.Count(text, "http.log.access"); n != 12 {
		t.Errorf("%d lines of the access log, want 12", n)
	}
	if i := strings.Index(text, secret3); i >= 0 || strings.Contains(text, "blue") {
		t.Errorf("the log shows ...%s", text[max(i, 0):min(len(text), max(i, 0)+200)])
	}
	if !strings.Contains(text, "key=REDACTED&b=2") || !strings.Contains(text, `"a=%gh`) && !strings.Contains(text, "?a=%gh&") {
		t.Error("the log does not show the rest of the query")
	}
	for line := range strings.Lines(text) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line is no JSON: %s", line)
		}
	}
}

func TestLogFormatKeepsItsOwnFilters(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	err := st.load(setup{usher: up.provider() + model(up), format: "\nformat usher {\nrequest>headers>Api-Key delete\n}"})
	if err == nil || !strings.Contains(err.Error(), "request>headers>Api-Key is filtered by this format itself") {
		t.Errorf("got %v", err)
	}
}

// Providers of the operator's own may see the trace. Others see nothing.
func TestProviderGetsTraceContextOnlyIfAllowed_B135_B140(t *testing.T) {
	trace := newTraceID()
	open, shut := newUpstream(t, breaks()), newUpstream(t, chats())
	st := serve(t, setup{usher: open.providerOf(key(1)+key(2), "trace_context", "header_up Traceparent mine") + shut.provider() + inOrder + model(open, shut)})
	r := st.ask(chatBody, http.StatusOK, inTrace(trace), header("Tracestate", "a=b"), header("Baggage", "user=alice"))
	st.expectAttempts(r, "k1 500 upstream_error", "k2 500 upstream_error", "k1 200 ok")
	ids := make(map[string]bool)
	for _, s := range spans.await(t, trace, "POST /v1/chat/completions 1", "chat m 3", "fifo admit 3", "fifo release 3", "keys select 1", "usher.admit 3", "usher.select 1") {
		if s.GetName() == "chat m" {
			ids[fmt.Sprintf("%x", s.GetSpanId())] = true
		}
	}
	for i, h := range open.expect(t, 2) {
		parts := strings.Split(h.Header.Get("Traceparent"), "-")
		if len(parts) != 4 || parts[1] != trace || !ids[parts[2]] || h.Header.Get("Tracestate") != "a=b" || h.Header.Get("Baggage") != "" {
			t.Errorf("attempt %d: header %v, want the span of the attempt, one of %v", i+1, h.Header, ids)
		}
		delete(ids, parts[2])
	}
	if h := shut.expect(t, 1)[0].Header; h.Get("Traceparent")+h.Get("Tracestate")+h.Get("Baggage") != "" {
		t.Errorf("header %v of a provider that must not see traces", h)
	}
}

// What a Connection header names is taken off the caller's request, and not
// off ours; nor off our answer.
func TestConnectionCannotTakeOffWhatIsOurs_B87(t *testing.T) {
	up := newUpstream(t, chats("Connection", "X-Usher-Candidate, Content-Type, Server-Timing", "X-Usher-Candidate", "faked"))
	st := serve(t, setup{usher: up.provider() + model(up) + callers})
	answer := st.raw("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + secret3 + "\r\n" +
		"Connection: close, Authorization, Accept-Encoding, Content-Length, Content-Type, Host\r\nContent-Type: application/json\r\n" +
		fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(chatBody), chatBody))
	h := up.expect(t, 1)[0]
	if h.Header.Get("Authorization") != "Bearer "+secret1 || h.Header.Get("Accept-Encoding") != "identity" || h.body != chatBody {
		t.Errorf("the provider got %v %q", h.Header, h.body)
	}
	for _, want := range []string{"200 OK", "X-Usher-Candidate: " + up.name + "/k1/m", "Server-Timing: "} {
		if !strings.Contains(answer, want) {
			t.Errorf("no %q in %s", want, answer)
		}
	}
}

package caddymodule_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A request that its caller gives up.
type abandoned struct {
	leave context.CancelFunc
	done  <-chan *reply
}

func (st *site) beginAndLeave(body string, options ...option) *abandoned {
	ctx, cancel := context.WithCancel(st.t.Context())
	return &abandoned{leave: cancel, done: st.begin(body, append(options, within(ctx))...)}
}

// expectGone checks the record of the last request, and the access log.
func (st *site) expectGone(attempts ...string) {
	st.t.Helper()
	st.await(0, 0)
	d := st.last()
	if d.Disposition != policy.ClientGone {
		st.t.Errorf("disposition %s, want client_gone:\n%s", d.Disposition, st.explain(d.ID))
	}
	if d.Status != 0 || d.Refusal != "" {
		st.t.Errorf("status %d and refusal %q of a caller who left", d.Status, d.Refusal)
	}
	st.expectAttempts(&reply{Response: &http.Response{Header: http.Header{"X-Usher-Request-Id": {d.ID}}}}, attempts...)
	eventually(st.t, func() error {
		if !strings.Contains(st.log(), `"status":499`) {
			return errors.New("no status 499 in the access log")
		}
		return nil
	})
}

func TestClientGoneEndsFailover_B62(t *testing.T) {
	g := newGate(t)
	a := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		g.arrived <- struct{}{}
		<-g.opened
		breaks()(w, r)
	})
	b := newUpstream(t, chats())
	st := serve(t, setup{usher: a.provider() + b.provider() + inOrder + model(a, b)})
	req := st.beginAndLeave(chatBody)
	after(t, g.arrived, "the request")
	req.leave()
	st.await(0, 0)
	g.open()
	st.expectGone("k1 0 client_gone")
	b.expect(t, 0)
	for _, word := range []string{"panic", "superfluous"} {
		if strings.Contains(st.log(), word) {
			t.Errorf("the log has the word %q", word)
		}
	}
}

func TestClientGoneIsNotBookedOnTheKey_B25_B50(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()))
	st := serve(t, setup{usher: up.provider() + model(up)})
	const more = 7 // than open the breaker
	for range more {
		req := st.beginAndLeave(chatBody)
		after(t, g.arrived, "the request")
		req.leave()
		after(t, g.left, "the end of the attempt")
		<-req.done
	}
	g.open()
	st.ask(chatBody, http.StatusOK)
}

func TestClientGoneWhileWaitingLeavesTheLine(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()))
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up)})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request that holds the key")
	req := st.beginAndLeave(chatBody)
	st.await(1, 1)
	req.leave()
	st.await(1, 0)
	d := st.last()
	if d.Disposition != policy.ClientGone || d.Status != 0 || d.Refusal != "" {
		t.Errorf("decision %+v, want client_gone and no answer", d)
	}
	if len(d.Admissions) != 1 || !d.Admissions[0].Waited || d.Admissions[0].Error == "" {
		t.Errorf("admissions %+v, want one that waited and was left", d.Admissions)
	}
	g.open()
	if r := after(t, holder, "holder"); r.StatusCode != http.StatusOK {
		t.Errorf("status %s", r.Status)
	}
	up.expect(t, 1)
}

// The caller leaves while its failed request waits for another key.
func TestClientGoneWhileFailoverWaits(t *testing.T) {
	first, second := newGate(t), newGate(t)
	one := newUpstream(t, first.then(breaks()))
	two := newUpstream(t, second.then(chats()))
	st := serve(t, setup{usher: one.provider() + two.providerOf(key(2, "limit concurrency 1")) + inOrder +
		model(one, two) + "model n " + two.name + "\n"})
	req := st.beginAndLeave(chatBody)
	after(t, first.arrived, "the request that fails")
	holder := st.begin(`{"model":"n"}`)
	after(t, second.arrived, "the request that holds the second key")
	first.open()
	st.await(1, 1)
	req.leave()
	st.await(1, 0)
	if d := st.last(); d.Disposition != policy.ClientGone || d.Status != 0 {
		t.Errorf("disposition %s and status %d, want client_gone and 0:\n%s", d.Disposition, d.Status, st.explain(d.ID))
	}
	second.open()
	after(t, holder, "holder")
	two.expect(t, 1)
}

func TestClientGoneInAStreamFreesTheKey_B23_B25(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.flows("data: {\"choices\":[{\"delta\":{\"content\":\"H\"}}]}\n\n", ""), chats())
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up)})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	resp, err := st.open(http.MethodPost, chatPath, streamBody, within(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "data:") {
		t.Fatalf("first line %q, %v", line, err)
	}
	leave()
	after(t, g.left, "the end of the attempt") // the provider sees the caller leave
	st.ask(chatBody, http.StatusOK)
	d := st.decision(resp.Header.Get("X-Usher-Request-Id"))
	if d.Status != http.StatusOK || d.Disposition != policy.ClientGone || len(d.Attempts) != 1 || d.Attempts[0].FirstEvent == 0 {
		t.Errorf("decision %+v, want status 200, client_gone, and the time of the first content", d)
	}
}

// A caller on HTTP/2 who resets one stream leaves the others alone.
func TestResetOfOneStreamEndsOneRequest_B149(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.flows("data: {\"choices\":[{\"delta\":{\"content\":\"H\"}}]}\n\n", streamAnswer))
	st := serve(t, setup{usher: up.provider() + model(up)})
	st.speakHTTP2()
	const streams = 5
	var leave context.CancelFunc
	var bodies []io.ReadCloser
	for i := range streams {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if i == 2 {
			leave = cancel
		}
		resp, err := st.open(http.MethodPost, chatPath, streamBody, within(ctx))
		if err != nil {
			t.Fatal(err)
		}
		if resp.ProtoMajor != 2 {
			t.Fatalf("the answer comes by %s", resp.Proto)
		}
		bodies = append(bodies, resp.Body)
		after(t, g.arrived, "the request")
	}
	leave()
	after(t, g.left, "the end of one attempt")
	st.await(streams-1, 0)
	g.open()
	for i, b := range bodies {
		text, err := io.ReadAll(b)
		if i == 2 {
			if err == nil {
				t.Error("the stream that was reset was read to its end")
			}
			continue
		}
		if err != nil || !strings.HasSuffix(string(text), streamAnswer) {
			t.Errorf("stream %d: %q, %v", i, text, err)
		}
	}
	if n := len(g.left); n != 0 {
		t.Errorf("%d more attempts were cut", n)
	}
}

// speakHTTP2 lets the client of st speak HTTP/2 without TLS.
func (st *site) speakHTTP2() {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	st.client = &http.Client{Transport: &http.Transport{Protocols: &protocols}}
	st.t.Cleanup(st.client.CloseIdleConnections)
}

// The deadline of the request is over while it waits: nobody's fault.
func TestDeadlineWhileWaiting(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{
		global: plugins(t, "", "dawdling"),
		usher:  up.provider() + model(up) + "admit dawdling\ntimeout 200ms\n",
	})
	r := st.ask(chatBody, http.StatusGatewayTimeout)
	if got := r.Header.Get("X-Usher-Reason"); got != "deadline_exceeded" {
		t.Errorf("X-Usher-Reason %q, want deadline_exceeded", got)
	}
	st.expectAttempts(r)
	if d := st.decision(r.id()); d.Disposition != policy.Denied {
		t.Errorf("disposition %s, want denied", d.Disposition)
	}
}

func TestDeadlineIsTheFaultOfACandidateThatHadMostOfTheTime(t *testing.T) {
	for name, c := range map[string]struct {
		first   time.Duration // until the first key fails
		timeout string
		want    []string
	}{
		"one hangs":            {time.Hour, "2s", []string{"k1 0 timeout"}},
		"others took the time": {2500 * time.Millisecond, "4500ms", []string{"k1 500 upstream_error", "k2 0 denied"}},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, late(c.first, breaks()), late(time.Hour, chats()))
			st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up) + "timeout " + c.timeout + "\n"})
			r := st.ask(chatBody, http.StatusGatewayTimeout)
			st.expectAttempts(r, c.want...)
		})
	}
}

// late answers after some time, unless the caller leaves.
func late(d time.Duration, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(d):
			answer(w, r)
		case <-r.Context().Done():
		}
	}
}

// A long answer that is cut by our own deadline was a good one.
func TestDeadlineInAStreamIsNotBookedOnTheKey(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.flows("data: {\"choices\":[{\"delta\":{\"content\":\"H\"}}]}\n\n", ""))
	st := serve(t, setup{usher: up.provider() + model(up) + "timeout 2s\n"})
	resp, err := st.open(http.MethodPost, chatPath, streamBody)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a stream that was cut looks whole")
	}
	d := st.decision(resp.Header.Get("X-Usher-Request-Id"))
	if got := attempts(d); len(got) != 1 || got[0] != "k1 200 denied" || d.Attempts[0].Error == "" {
		t.Errorf("attempts %+v, want one that was denied, with the error", d.Attempts)
	}
}

func TestABodyThatNeverEndsIsGivenUp(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up) + "timeout 200ms"})
	for name, head := range map[string]string{
		"of a known length": "Content-Length: 100\r\n\r\n{",
		"in chunks":         "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
		"compressed":        "Content-Encoding: gzip\r\nContent-Length: 100\r\n\r\n",
	} {
		answer := st.raw("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + head) // which ends with the connection
		if !strings.HasPrefix(answer, "HTTP/1.1 504") || !strings.Contains(answer, "deadline_exceeded") {
			t.Errorf("%s: answer %q, want 504 deadline_exceeded", name, answer)
		}
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	defer transport.CloseIdleConnections()
	body, rest := io.Pipe()
	defer func() { _ = rest.Close() }()
	req, err := http.NewRequest(http.MethodPost, st.url+"/v1/chat/completions", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("%s %s, want 504 by HTTP/2", resp.Proto, resp.Status)
	}
	up.expect(t, 0)
}

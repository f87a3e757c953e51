package caddymodule_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// raw sends a request as it is written, and returns all that comes back until
// the server closes the connection.
func (st *site) raw(text string) string {
	st.t.Helper()
	conn := st.dial()
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, text); err != nil {
		st.t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		st.t.Fatal(err)
	}
	return string(answer)
}

func (st *site) dial() net.Conn {
	st.t.Helper()
	u, err := url.Parse(st.url)
	if err != nil {
		st.t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		st.t.Fatal(err)
	}
	return conn
}

func TestHopByHopHeadersStayOnTheirHop_B87(t *testing.T) {
	up := newUpstream(t, chats("Connection", "X-Answer-Hop", "X-Answer-Hop", "1", "Keep-Alive", "timeout=5", "X-Kept", "1"))
	st := serve(t, setup{usher: up.provider() + model(up)})
	answer := st.raw("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection:\r\nConnection: close, X-Secret-Hop\r\n" +
		"X-Secret-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy-Connection: keep-alive\r\nTrailer: X-T\r\nUpgrade: websocket\r\n" +
		"Expect: 100-continue\r\nX-Kept: 1\r\nTenant: blue\r\n" +
		fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(chatBody), chatBody))
	h := up.expect(t, 1)[0].Header
	for _, name := range []string{"X-Secret-Hop", "Keep-Alive", "Te", "Proxy-Connection", "Trailer", "Upgrade", "Expect", "Connection"} {
		if v, ok := h[name]; ok {
			t.Errorf("the provider got %s: %q", name, v)
		}
	}
	if h.Get("X-Kept") != "1" || h.Get("Tenant") != "blue" {
		t.Errorf("the provider did not get the other headers: %v", h)
	}
	if strings.Contains(answer, "X-Answer-Hop") || strings.Contains(answer, "timeout=5") || !strings.Contains(answer, "X-Kept: 1") {
		t.Errorf("answer %q", answer)
	}
}

func TestUpgradeToNoProtocolIsAMistakeOfTheCaller(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	r := st.ask(chatBody, http.StatusBadRequest, header("Connection", "Upgrade"), header("Upgrade", "caf\xe9"))
	if got := r.Header.Get("X-Usher-Reason"); got != "bad_request" {
		t.Errorf("X-Usher-Reason %q, want bad_request", got)
	}
	up.expect(t, 0)
}

func TestInformationalAnswersStayHere_B87(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "s=early")
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		chats()(w, r)
	})
	st := serve(t, setup{usher: up.provider() + model(up)})
	answer := st.raw("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" +
		fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(chatBody), chatBody))
	if !strings.HasPrefix(answer, "HTTP/1.1 200 OK\r\n") || strings.Contains(answer, "early") {
		t.Errorf("answer %q, want nothing before the 200", answer)
	}
	if !strings.Contains(answer, "X-Usher-Request-Id: ") {
		t.Errorf("answer %q has no ID", answer)
	}
}

func TestTrailersOfAProviderStayThere(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Announced")
		streams(streamAnswer)(w, r)
		w.Header().Set("X-Announced", "1")
		w.Header().Set(http.TrailerPrefix+"Set-Cookie", "s=late")
	})
	st := serve(t, setup{usher: up.provider() + model(up)})
	r := st.ask(streamBody, http.StatusOK)
	if len(r.Trailer) != 0 || r.body != streamAnswer {
		t.Errorf("trailers %v, body %q", r.Trailer, r.body)
	}
}

func TestExpect100IsAnsweredAndNotPassedOn(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	conn := st.dial()
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", chatPath, len(chatBody))
	if err != nil {
		t.Fatal(err)
	}
	line, err := r.ReadString('\n')
	if want := "HTTP/1.1 100 Continue\r\n"; err != nil || line != want {
		t.Fatalf("line %q, %v, want %q", line, err, want)
	}
	if _, err := io.WriteString(conn, chatBody); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("answer %v, %v", resp, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if diff := cmp.Diff(chatAnswer, string(body)); diff != "" || err != nil {
		t.Errorf("body (-want +got):\n%s %v", diff, err)
	}
	if got := up.expect(t, 1)[0].Header.Get("Expect"); got != "" {
		t.Errorf("the provider got Expect: %s", got)
	}
}

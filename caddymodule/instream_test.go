package caddymodule_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/usherproxy/usher/policy"
)

const (
	responsesHead = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r1\"}}\n\n" +
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"H\"}\n\n"
	anthropicHead = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\"}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"H\"}}\n\n"
	geminiHead = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"H\"}]}}]}\r\n\r\n"
	listHead   = "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"H\"}]}}]}"
)

// then breaks the connection off.
func thenBreaks(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer(w, r)
		panic(http.ErrAbortHandler)
	}
}

// sendsList sends a stream as a list of JSON.
func sendsList(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// readCut reads an answer that must not look whole.
func (st *site) readCut(path, body string) (text, id string) {
	st.t.Helper()
	r, err := st.send(http.MethodPost, path, body)
	if r == nil {
		st.t.Fatal(err)
	}
	if err == nil {
		st.t.Errorf("the answer looks whole: %s", r.body)
	}
	return r.body, r.id()
}

// A stream that breaks off ends with an error in its own format, where one can
// stand, and never looks whole.
func TestStreamThatBreaksOffEndsWithAnError(t *testing.T) {
	const geminiPath = "/v1beta/models/m:streamGenerateContent"
	told := `{"error":{"message":"the provider failed","type":"server_error","param":null,"code":"upstream_error"}}`
	geminiTold := `{"error":{"code":502,"message":"the provider failed","status":"UNAVAILABLE","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"UPSTREAM_ERROR","domain":"usher"}]}}`
	for name, c := range map[string]struct {
		format, path string
		answer       http.HandlerFunc
		want         string
	}{
		"chat":             {"openai", chatPath, thenBreaks(streams(content)), content + "data: " + told + "\n\n"},
		"chat, clean end":  {"openai", chatPath, streams(content), content + "data: " + told + "\n\n"},
		"inside an event":  {"openai", chatPath, thenBreaks(streams(content, "data: {\"choices\":")), content + "data: {\"choices\":"},
		"inside a line":    {"openai", chatPath, thenBreaks(streams(content, ": pi")), content + ": pi"},
		"of known length":  {"openai", chatPath, thenBreaks(withLength("1000", streams(content))), content},
		"an error before":  {"openai", chatPath, thenBreaks(streams(content, "data: {\"error\":{\"code\":\"x\"}}\n\n")), content + "data: {\"error\":{\"code\":\"x\"}}\n\n"},
		"responses":        {"openai", "/v1/responses", thenBreaks(streams(responsesHead)), responsesHead + "event: error\ndata: {\"type\":\"error\",\"code\":\"upstream_error\",\"message\":\"the provider failed\",\"param\":null,\"sequence_number\":0}\n\n"},
		"responses, clean": {"openai", "/v1/responses", streams(responsesHead), responsesHead + "event: error\ndata: {\"type\":\"error\",\"code\":\"upstream_error\",\"message\":\"the provider failed\",\"param\":null,\"sequence_number\":0}\n\n"},
		"anthropic":        {"anthropic", "/v1/messages", thenBreaks(streams(anthropicHead)), anthropicHead + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"the provider failed\"}}\n\n"},
		"anthropic, clean": {"anthropic", "/v1/messages", streams(anthropicHead), anthropicHead + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"the provider failed\"}}\n\n"},
		"gemini":           {"gemini", geminiPath + "?alt=sse", thenBreaks(streams(geminiHead)), geminiHead + "data: " + geminiTold + "\n\n"},
		"gemini, clean":    {"gemini", geminiPath + "?alt=sse", streams(geminiHead), geminiHead + "data: " + geminiTold + "\n\n"},
		"list":             {"gemini", geminiPath, thenBreaks(sendsList(listHead)), listHead + "," + geminiTold + "]"},
		"list, comma":      {"gemini", geminiPath, thenBreaks(sendsList(listHead, ",\r\n")), listHead + ",\r\n" + geminiTold + "]"},
		"list, element":    {"gemini", geminiPath, thenBreaks(sendsList(listHead, ",{\"c")), listHead + ",{\"c"},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, c.answer)
			st := serve(t, setup{usher: up.provider("format "+c.format) + model(up)})
			body := streamBody
			if c.format == "gemini" {
				body = `{}`
			}
			got, id := st.readCut(c.path, body)
			if got != c.want {
				t.Errorf("got\n%q, want\n%q", got, c.want)
			}
			d := st.decision(id)
			if want := policy.UpstreamError; d.Disposition != want || d.Attempts[0].Error == "" && name != "an error before" {
				t.Errorf("want %s with its error:\n%s", want, st.explain(id))
			}
			up.expect(t, 1)
		})
	}
}

// withLength says how long an answer is.
func withLength(n string, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", n)
		answer(w, r)
	}
}

// Each time that is over is told by its name: to the caller, in the record and
// on the span.
func TestTimesThatAreOverAreToldByTheirNames_B97(t *testing.T) {
	silent := func(first string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			streams(first)(w, r)
			<-r.Context().Done()
		}
	}
	errorEvent := func(code string) string { return `"code":"` + code + `"}}` + "\n\n" }
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		option string
		want   string // the end of a stream, or the reason of a refusal
		part   string
	}{
		"no header":    {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "timeout first_event 200ms", "first_event_timeout", "first_event"},
		"no event":     {silent(""), "timeout first_event 200ms", "first_event_timeout", "first_event"},
		"pings only":   {silent(": ping\n\n"), "timeout first_event 200ms", "first_event_timeout", "first_event"},
		"silence":      {silent(content), "timeout idle 200ms", errorEvent("idle_timeout"), "idle"},
		"half a event": {silent(content + "data: "), "timeout idle 200ms", "data: ", "idle"},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, c.answer)
			st := serve(t, setup{usher: up.provider(c.option) + model(up)})
			r, err := st.send(http.MethodPost, chatPath, streamBody)
			if r == nil {
				t.Fatal(err)
			}
			d := st.decision(r.id())
			if c.part == "idle" {
				if err == nil || !strings.HasPrefix(r.body, content) || !strings.HasSuffix(r.body, c.want) {
					t.Errorf("got %q, %v, want %q at the end", r.body, err, c.want)
				}
			} else if r.StatusCode != http.StatusGatewayTimeout || r.Header.Get("X-Usher-Reason") != c.want {
				t.Errorf("status %s %s, want 504 %s", r.Status, r.body, c.want)
			}
			a := d.Attempts[0]
			if len(d.Attempts) != 1 || a.Disposition != policy.Timeout || a.Timeout != c.part || !strings.Contains(a.Error, "timeout "+c.part) {
				t.Errorf("want timeout %s:\n%s", c.part, st.explain(d.ID))
			}
		})
	}
}

func TestTimeToTheFirstEventFailsOver(t *testing.T) {
	g := newGate(t)
	hangs, up := newUpstream(t, g.then(streams(streamAnswer))), newUpstream(t, streams(streamAnswer))
	st := serve(t, setup{usher: hangs.provider("timeout first_event 1s") + up.providerOf(key(2)) + inOrder + model(hangs, up)})
	r := st.ask(streamBody, http.StatusOK)
	if r.body != streamAnswer {
		t.Errorf("got %q", r.body)
	}
	after(t, g.left, "the end of the first attempt")
	st.expectAttempts(r, "k1 0 timeout", "k2 200 ok")
}

// An answer that is no stream has only the time of the whole request.
func TestWholeAnswersHaveNoTimeToTheFirstEvent(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()))
	st := serve(t, setup{usher: up.provider("timeout first_event 1ms", "timeout idle 1m") + model(up)})
	done := st.begin(chatBody)
	after(t, g.arrived, "the request")
	g.open()
	if r := after(t, done, "the answer"); r.StatusCode != http.StatusOK {
		t.Errorf("status %s %s", r.Status, r.body)
	}
}

// A server that accepts connections and says nothing does not get as far as
// TLS.
func TestTimeToConnectIsToldByItsName(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	st := serve(t, setup{usher: "provider mute https://" + l.Addr().String() + " {\n" + key(1) + "timeout connect 200ms\n}\nmodel m mute\n"})
	r := st.ask(chatBody, http.StatusGatewayTimeout)
	if got := r.Header.Get("X-Usher-Reason"); got != "connect_timeout" {
		t.Errorf("X-Usher-Reason %q", got)
	}
	d := st.decision(r.id())
	if a := d.Attempts[0]; a.Disposition != policy.ConnectFailed || a.Timeout != "connect" {
		t.Errorf("attempt %+v", a)
	}
}

func TestCertificateThatIsNotTrustedIsNoConnection(t *testing.T) {
	up := newUpstream(t, chats())
	up.Close()
	up.Server = httptest.NewTLSServer(http.HandlerFunc(up.serve))
	t.Cleanup(up.Close)
	st := serve(t, setup{usher: up.provider() + model(up)})
	st.expectAttempts(st.ask(chatBody, http.StatusBadGateway), "k1 0 connect_failed")
}

package caddymodule_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/commit"
	"github.com/usherproxy/usher/policy"
)

const (
	beat  = ": heartbeat\n\n"
	beats = "heartbeat 50ms\n"
)

// An opened answer is read while it comes.
type opened struct {
	*http.Response
	body *bufio.Reader
}

func (st *site) stream(path, body string) *opened {
	st.t.Helper()
	resp, err := st.open(http.MethodPost, path, body)
	if err != nil {
		st.t.Fatal(err)
	}
	st.t.Cleanup(func() { _ = resp.Body.Close() })
	return &opened{resp, bufio.NewReader(resp.Body)}
}

// expect reads text.
func (o *opened) expect(t *testing.T, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(o.body, got); err != nil || string(got) != text {
		t.Fatalf("got %q, %v, want %q", got, err, text)
	}
}

// rest reads to the end, without the heartbeats.
func (o *opened) rest() (string, error) {
	text, err := io.ReadAll(o.body)
	return strings.ReplaceAll(string(text), beat, ""), err
}

// While a request waits for its turn, and then for its answer, its caller gets
// heartbeats.
func TestHeartbeatsComeWhileARequestWaits_B05(t *testing.T) {
	first, second := newGate(t), newGate(t)
	up := newUpstream(t, first.then(chats()), second.then(streams(streamAnswer)))
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up) + beats})
	holder := st.begin(chatBody)
	after(t, first.arrived, "the first request")
	o := st.stream(chatPath, streamBody)
	if o.StatusCode != http.StatusOK || o.Header.Get("Content-Type") != "text/event-stream" || o.Header.Get("X-Usher-Request-Id") == "" {
		t.Errorf("%s %v", o.Status, o.Header)
	}
	o.expect(t, beat+beat)
	first.open()
	after(t, holder, "holder")
	after(t, second.arrived, "the request")
	o.expect(t, beat+beat)
	second.open()
	if rest, err := o.rest(); rest != streamAnswer || err != nil {
		t.Errorf("got %q, %v", rest, err)
	}
	d := st.decision(o.Header.Get("X-Usher-Request-Id"))
	if d.Disposition != policy.OK || d.Status != http.StatusOK {
		t.Errorf("decision %+v", d)
	}
}

func TestHeartbeatsNeverStandInsideAnEvent(t *testing.T) {
	step := make(chan string)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		for piece := range step {
			streams(piece)(w, r)
		}
	})
	st := serve(t, setup{usher: up.provider() + model(up) + beats})
	o := st.stream(chatPath, streamBody)
	o.expect(t, beat)
	step <- content + "data: {\"choices\""
	g := newGate(t) // of another request, which takes as long as some heartbeats
	other := newUpstream(t, g.then(streams(streamAnswer)))
	if err := st.load(setup{usher: up.provider() + other.provider() + model(up) + "model n " + other.name + "\n" + beats}); err != nil {
		t.Fatal(err)
	}
	clock := st.stream(chatPath, strings.Replace(streamBody, `"m"`, `"n"`, 1))
	clock.expect(t, beat+beat+beat)
	step <- ":[]}\n\n"
	text := readUntil(t, o, ":[]}\n\n")
	if got := strings.ReplaceAll(text, beat, ""); got != content+"data: {\"choices\":[]}\n\n" {
		t.Errorf("got %q", text)
	}
	o.expect(t, beat)
	step <- streamAnswer
	close(step)
	if rest, err := o.rest(); rest != streamAnswer || err != nil {
		t.Errorf("got %q, %v", rest, err)
	}
	g.open()
	if rest, err := clock.rest(); rest != streamAnswer || err != nil {
		t.Errorf("got %q, %v", rest, err)
	}
}

// readUntil reads to the end of text.
func readUntil(t *testing.T, o *opened, text string) string {
	t.Helper()
	var got strings.Builder
	for !strings.HasSuffix(got.String(), text) {
		c, err := o.body.ReadByte()
		if err != nil {
			t.Fatalf("got %q, %v", got.String(), err)
		}
		got.WriteByte(c)
	}
	return got.String()
}

// After a heartbeat, what goes wrong is told inside the stream.
func TestAfterAHeartbeatErrorsAreEvents(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		answer http.HandlerFunc
		option string
		want   string
	}{
		"the queue's refusal":  {chatPath, nil, "admit fifo {\nmax_wait 3s\n}\n", `data: {"error":{"message":"the request waited for a free place as long as it may","type":"rate_limit_error","param":null,"code":"queue_timeout"}}` + "\n\n"},
		"the deadline":         {chatPath, nil, "timeout 3s\n", `data: {"error":{"message":"the request took longer than this gateway allows","type":"server_error","param":null,"code":"deadline_exceeded"}}` + "\n\n"},
		"the provider's error": {chatPath, answers(400, "{\"error\": {\"message\":\"no\",\n\"type\":\"x\"}}"), "", `data: {"error":{"message":"no","type":"x"}}` + "\n\n"},
		"of a responses":       {"/v1/responses", answers(400, `{"error": {"message":"no","type":"x","param":"input"}}`), "", "event: error\ndata: " + `{"type":"error","code":"x","message":"no","param":"input","sequence_number":0}` + "\n\n"},
		"an error of no words": {chatPath, answers(500, "<html>"), "", `data: {"error":{"message":"the provider failed","type":"server_error","param":null,"code":"upstream_error"}}` + "\n\n"},
		"the last of attempts": {chatPath, limited(), "", "data: " + failure("rate_limit_error", "rate_limit_exceeded") + "\n\n"},
		"no connection":        {chatPath, drops, "", `data: {"error":{"message":"the provider failed","type":"server_error","param":null,"code":"upstream_error"}}` + "\n\n"},
		"a large answer":       {chatPath, says(strings.Repeat("x", 3*commit.DefaultMaxBytes)), "", `data: {"error":{"message":"the provider failed","type":"server_error","param":null,"code":"upstream_error"}}` + "\n\n"},
		"a large JSON answer":  {chatPath, answers(200, `{"choices":["`+strings.Repeat("x", 3*commit.DefaultMaxBytes)+`"]}`), "", `data: {"error":{"message":"the provider failed","type":"server_error","param":null,"code":"upstream_error"}}` + "\n\n"},
		"an answer at once":    {chatPath, chats(), "", `data: {"error":{"message":"the provider failed","type":"server_error","param":null,"code":"upstream_error"}}` + "\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			g, holds := newGate(t), newGate(t)
			up := newUpstream(t, holds.then(chats()), g.then(c.answer))
			st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up) + beats + c.option})
			holder := st.begin(chatBody)
			after(t, holds.arrived, "the first request")
			o := st.stream(c.path, streamBody)
			o.expect(t, beat)
			if c.answer != nil {
				holds.open()
				after(t, g.arrived, "the request")
				g.open()
			}
			rest, err := o.rest()
			if rest != c.want || err == nil {
				t.Errorf("got %q, %v, want %q and no clean end", rest, err, c.want)
			}
			holds.open()
			after(t, holder, "holder")
			if d := st.decision(o.Header.Get("X-Usher-Request-Id")); d.Status != http.StatusOK || d.Disposition == policy.OK || d.Disposition == policy.ClientGone {
				t.Errorf("%d %s in the record", d.Status, d.Disposition)
			}
		})
	}
}

// What is answered before the first heartbeat is answered as ever.
func TestWithoutAHeartbeatAnswersAreAsEver(t *testing.T) {
	up := newUpstream(t, streams(streamAnswer), limited("Retry-After", "7"))
	st := serve(t, setup{usher: up.provider() + model(up) + "heartbeat 1m\n"})
	r := st.ask(streamBody, http.StatusOK)
	if r.body != streamAnswer || r.Header.Get("X-Usher-Candidate") == "" || r.Header.Get("Server-Timing") == "" {
		t.Errorf("%v %q", r.Header, r.body)
	}
	st.ask(streamBody, http.StatusTooManyRequests).expectRetryAfter(t, 7)
}

// Answers that are no events get no heartbeats.
func TestHeartbeatsAreForEventsOnly(t *testing.T) {
	for name, c := range map[string]struct {
		format, path, body string
		answer             http.HandlerFunc
		want               string
	}{
		"a whole answer": {"openai", chatPath, chatBody, chats(), chatAnswer},
		"a list":         {"gemini", "/v1beta/models/m:streamGenerateContent", "{}", sendsList("[" + geminiAnswer + "]"), "[" + geminiAnswer + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			g, ticks := newGate(t), newGate(t)
			up, clock := newUpstream(t, g.then(c.answer)), newUpstream(t, ticks.then(streams(streamAnswer)))
			st := serve(t, setup{usher: up.provider("format "+c.format) + clock.provider() + model(up) + "model n " + clock.name + "\n" + beats})
			done := make(chan *reply, 1)
			go func() {
				r, err := st.send(http.MethodPost, c.path, c.body)
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			after(t, g.arrived, "the request")
			o := st.stream(chatPath, strings.Replace(streamBody, `"m"`, `"n"`, 1))
			o.expect(t, beat+beat+beat)
			g.open()
			ticks.open()
			if r := after(t, done, "the answer"); r.body != c.want {
				t.Errorf("got %q, want %q", r.body, c.want)
			}
			if rest, err := o.rest(); rest != streamAnswer || err != nil {
				t.Errorf("got %q, %v", rest, err)
			}
		})
	}
}

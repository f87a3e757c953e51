package caddymodule_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/policy"
)

// content is an event with content.
const content = "data: {\"choices\":[{\"delta\":{\"content\":\"H\"},\"finish_reason\":null}]}\n\n"

// An answer passes byte by byte as it is, wherever it is split.
func TestStreamIsPassedOnByteByByte(t *testing.T) {
	odd := ": comment\r\n\r\n" + strings.ReplaceAll(streamAnswer, "\n", "\r\n") + "event: x\rdata: é\x00\xff\r\r" + "data: no end"
	for name, text := range map[string]string{"plain": streamAnswer, "odd": odd} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 0))
				up := newUpstream(t, streams(split(r, text)...))
				st := serve(t, setup{usher: up.provider() + model(up)})
				got := st.ask(streamBody, http.StatusOK)
				if got.body != text {
					t.Errorf("got\n%q, want\n%q", got.body, text)
				}
				if ct := got.Header.Get("Content-Type"); ct != "text/event-stream" {
					t.Errorf("Content-Type %q", ct)
				}
				d := st.decision(got.id())
				if u := d.Attempts[0].Usage; u == nil || u.InputTokens != 3 || u.OutputTokens != 2 || d.Disposition != policy.OK {
					t.Errorf("%s with usage %+v, want ok with 3 + 2", d.Disposition, u)
				}
			})
		}
	}
}

// split cuts text into pieces; the smaller, the more likely.
func split(r *rand.Rand, text string) []string {
	var pieces []string
	for len(text) > 0 {
		n := min(1+r.IntN(1+r.IntN(60)), len(text))
		pieces, text = append(pieces, text[:n]), text[n:]
	}
	return pieces
}

// The beginning of an answer is held back until it has content, but not for
// long.
func TestHeadersOfAStreamDoNotWaitLongForItsFirstEvent_B01(t *testing.T) {
	caddymodule.HoldBeginnings(t, 50*time.Millisecond)
	for name, first := range map[string]string{"the header alone": "", "a comment": ": ping\n\n"} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			up := newUpstream(t, g.flows(first, streamAnswer))
			st := serve(t, setup{usher: up.provider() + model(up)})
			resp, err := st.open(http.MethodPost, chatPath, streamBody)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			got := make([]byte, len(first))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != first {
				t.Errorf("got %q, %v", got, err)
			}
			g.open()
			if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != streamAnswer {
				t.Errorf("the rest %q, %v", rest, err)
			}
		})
	}
}

func TestEachPieceOfAStreamIsSentAtOnce_B03(t *testing.T) {
	step := make(chan string)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		for piece := range step {
			streams(piece)(w, nil)
		}
	})
	st := serve(t, setup{usher: up.provider() + model(up)})
	done := st.pieces(streamBody)
	for _, piece := range []string{content, ": ping\n\n", "data: half an ", "event\n", "\n", streamAnswer} {
		step <- piece
		if got := after(t, done, "the piece"); got != piece {
			t.Errorf("got %q, want %q", got, piece)
		}
	}
	close(step)
	if got := after(t, done, "the end"); got != "" {
		t.Errorf("got %q after the end", got)
	}
}

// pieces returns the pieces of an answer as they come, and "" at its end.
func (st *site) pieces(body string) <-chan string {
	pieces := make(chan string)
	go func() {
		defer close(pieces)
		resp, err := st.open(http.MethodPost, chatPath, body)
		if err != nil {
			pieces <- err.Error()
			return
		}
		defer func() { _ = resp.Body.Close() }()
		buf := make([]byte, 1<<16)
		for {
			n, err := resp.Body.Read(buf)
			if err == io.EOF && n == 0 {
				return
			}
			pieces <- string(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return pieces
}

// How a stream ends decides what it counts as, and what it shows before it has
// content decides whether it reaches the caller.
func TestEndsOfStreams(t *testing.T) {
	broken := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			streams(text)(w, r)
			panic(http.ErrAbortHandler)
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		status int
		cut    bool
		want   policy.Disposition
	}{
		"B13 without [DONE]":   {streams(strings.ReplaceAll(streamAnswer, "data: [DONE]\n\n", "")), 200, false, policy.OK},
		"no word of an end":    {streams(`data: {"choices":[{"delta":{"content":"H"}}]}` + "\n\n"), 200, false, policy.OK},
		"broken":               {broken(content), 200, true, policy.UpstreamError},
		"broken at once":       {broken(": a\n\n"), 502, false, policy.UpstreamError},
		"B17 empty":            {streams(""), 502, false, policy.UpstreamError},
		"B17 comments only":    {streams(": a\n\n", ": b\n\n"), 502, false, policy.UpstreamError},
		"overload":             {streams(`data: {"error":{"type":"server_error","code":"server_is_overloaded"}}` + "\n\n"), 503, false, policy.Overloaded},
		"error in the middle":  {streams(content, `data: {"error":{"message":"x","code":"rate_limit_exceeded"}}`+"\n\n"), 200, false, policy.RateLimited},
		"whole answer instead": {chats(), 200, false, policy.OK},
		"text instead":         {says("Nothing found"), 502, false, policy.UpstreamError},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, c.answer)
			st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up)})
			resp, err := st.open(http.MethodPost, chatPath, streamBody)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if _, err := io.ReadAll(resp.Body); (err != nil) != c.cut {
				t.Errorf("the end looks like %v", err)
			}
			d := st.decision(resp.Header.Get("X-Usher-Request-Id"))
			if len(d.Attempts) != 1 || d.Attempts[0].Disposition != c.want || d.Disposition != c.want || d.Status != c.status {
				t.Errorf("want %d %s:\n%s", c.status, c.want, st.explain(d.ID))
			}
			st.await(0, 0)
		})
	}
}

// Nothing of the first answer reaches the caller.
func TestFailoverBeforeTheFirstContent_B15(t *testing.T) {
	for name, first := range map[string]http.HandlerFunc{
		"overload":  streams(": connected\n\n", `data: {"error":{"code":"server_is_overloaded"}}`+"\n\n"),
		"B17 empty": streams(": connected\n\n"),
		"a role":    streams(`data: {"choices":[{"delta":{"role":"assistant"}}]}`+"\n\n", `data: {"error":{"code":"rate_limit_exceeded"}}`+"\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, first, streams(streamAnswer))
			st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up)})
			r := st.ask(streamBody, http.StatusOK)
			if r.body != streamAnswer || r.Header.Get("X-Usher-Candidate") != up.name+"/k2/m" {
				t.Errorf("got %q from %s", r.body, r.Header.Get("X-Usher-Candidate"))
			}
			up.expect(t, 2)
		})
	}
}

// An answer that is shorter than it says is not passed off as whole.
func TestAnswerThatIsCutIsCutForTheCaller(t *testing.T) {
	up := newUpstream(t, chats("Content-Length", "1000"))
	st := serve(t, setup{usher: up.provider() + model(up)})
	r, err := st.send(http.MethodPost, chatPath, chatBody)
	if err == nil {
		t.Errorf("got %q as whole", r.body)
	}
	d := st.last()
	if d.Disposition != policy.UpstreamError || !strings.Contains(d.Attempts[0].Error, "unexpected EOF") {
		t.Errorf("attempts %+v, want upstream_error with the error", d.Attempts)
	}
}

func TestLongErrorIsPassedOnWhole(t *testing.T) {
	long := `{"error":{"message":"` + strings.Repeat("x", 200<<10) + `"}}`
	for _, status := range []int{400, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			up := newUpstream(t, answers(status, long))
			st := serve(t, setup{usher: up.provider() + model(up)})
			if r := st.ask(chatBody, status); r.body != long {
				t.Errorf("got %d bytes, want %d", len(r.body), len(long))
			}
		})
	}
}

func TestErrorThatIsCutIsPassedOnAsFarAsItCame(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"error":`)
	})
	st := serve(t, setup{usher: up.provider() + model(up)})
	if r := st.ask(chatBody, http.StatusInternalServerError); r.body != `{"error":` {
		t.Errorf("body %q", r.body)
	}
}

// says answers with plain text, and status 200.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, text)
	}
}

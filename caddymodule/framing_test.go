package caddymodule_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/usherproxy/usher/policy"
)

// usage returns what the only attempt of a request was counted as.
func (st *site) usage(id string) (input, output int64, known bool) {
	st.t.Helper()
	d := st.decision(id)
	if len(d.Attempts) != 1 || d.Disposition != policy.OK {
		st.t.Errorf("want one attempt that is ok:\n%s", st.explain(id))
	}
	u := d.Attempts[0].Usage
	if u == nil {
		return 0, 0, false
	}
	return u.InputTokens, u.OutputTokens, true
}

// Streams that are odd but legal, or broken in one place, are passed on byte by
// byte, and read as far as they make sense.
func TestOddStreamsArePassedOnAndRead(t *testing.T) {
	const end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	const usage = `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}`
	for name, pieces := range map[string][]string{
		"B06 a character in two pieces": {"data: {\"choices\":[{\"delta\":{\"content\":\"\xE5", "\x8C\x97\"}}]}\n\n", end, "data: " + usage + "\n\n"},
		"B08 no space after the colon":  {"data:{\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n", end, "data:" + usage + "\n\n"},
		"B08 data in several lines":     {end, "data: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":3,\ndata:\"completion_tokens\":2}}\n\n"},
		"B08 a colon in the text":       {"data: {\"choices\":[{\"delta\":{\"content\":\"k: v\"}}]}\n\n", end, "data: " + usage + "\n\n"},
		"B10 no blank line at the end":  {end, "data: " + usage},
		"B10 no end of the last line":   {end, "data: " + usage + "\n"},
		"B10 garbage in the middle":     {content, "garbage \xff{\n\ndata: {{{\n\n", end, "data: " + usage + "\n\n"},
		"B13 no [DONE]":                 {content, end, "data: " + usage + "\n\n"},
		"other fields":                  {"id: 7\nretry: 10\nevent: x\ndata: {}\n\n", content, end, "data: " + usage + "\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, streams(pieces...))
			st := serve(t, setup{usher: up.provider() + model(up)})
			r := st.ask(streamBody, http.StatusOK)
			if want := strings.Join(pieces, ""); r.body != want {
				t.Errorf("got\n%q, want\n%q", r.body, want)
			}
			if in, out, known := st.usage(r.id()); in != 3 || out != 2 || !known {
				t.Errorf("usage %d + %d (known: %t), want 3 + 2", in, out, known)
			}
		})
	}
}

// An error event is an error, and not an empty stream, whatever came before.
func TestErrorAfterPreambleIsToldFromAnEmptyStream_B17(t *testing.T) {
	const created = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{}}\n\n"
	for name, c := range map[string]struct {
		answer string
		want   string
	}{
		"overloaded":              {created + "event: error\ndata: {\"type\":\"error\",\"code\":\"server_is_overloaded\",\"message\":\"x\"}\n\n", "k1 200 overloaded"},
		"created and nothing":     {created, "k1 200 upstream_error"},
		"created, and it's done?": {created + "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"x\"}}}\n\n", "k1 200 rate_limited"},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, streams(c.answer), streams(responsesHead+"event: response.completed\ndata: {\"type\":\"response.completed\"}\n\n"))
			st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up)})
			r := st.do(http.MethodPost, "/v1/responses", streamBody)
			st.expectAttempts(r, c.want, "k2 200 ok")
		})
	}
}

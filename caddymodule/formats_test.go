package caddymodule_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/usherproxy/usher/policy"
)

const (
	messageAnswer = `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`
	messageStream = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":3,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}

event: message_stop
data: {"type":"message_stop"}

`
	overloadedEvent = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	geminiAnswer    = `{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2}}`
)

func TestAnthropicRequestsFailOverAndAreCounted(t *testing.T) {
	overloaded := answers(529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
	for name, c := range map[string]struct {
		first, second http.HandlerFunc
		body, want    string
		attempts      []string
	}{
		"status": {
			overloaded, answers(200, messageAnswer), `{"model":"m","max_tokens":9}`, messageAnswer,
			[]string{"k1 529 overloaded", "k2 200 ok"},
		},
		"B15 event": {
			streams(overloadedEvent), streams(messageStream), `{"model":"m","max_tokens":9,"stream":true}`, messageStream,
			[]string{"k1 200 overloaded", "k2 200 ok"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, c.first, c.second)
			st := serve(t, setup{usher: up.providerOf(key(1)+key(2), "format anthropic") + inOrder + model(up) + callers})
			r := st.do(http.MethodPost, "/v1/messages", c.body, header("X-Api-Key", secret3), header("Anthropic-Version", "2023-06-01"))
			if r.StatusCode != http.StatusOK || r.body != c.want {
				t.Errorf("%s %q, want %q\n%s", r.Status, r.body, c.want, st.explain(r.id()))
			}
			st.expectAttempts(r, c.attempts...)
			if u := st.decision(r.id()).Attempts[1].Usage; u == nil || u.InputTokens != 3 || u.OutputTokens != 2 {
				t.Errorf("usage %+v, want 3 + 2", u)
			}
			for i, h := range up.expect(t, 2) {
				secret := []string{secret1, secret2}[i]
				if h.Header.Get("X-Api-Key") != secret || h.Header.Get("Authorization") != "" || h.Header.Get("Anthropic-Version") != "2023-06-01" {
					t.Errorf("attempt %d: header %v", i+1, h.Header)
				}
				if h.URL.Path != "/v1/messages" || h.body != c.body {
					t.Errorf("attempt %d: %s %s", i+1, h.URL, h.body)
				}
			}
		})
	}
}

func TestGeminiRequestsFailOverWithTheModelOfTheirPath(t *testing.T) {
	exhausted := answers(429, `{"error":{"code":429,"message":"Resource exhausted","status":"RESOURCE_EXHAUSTED"}}`)
	up := newUpstream(t, exhausted, answers(200, geminiAnswer))
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2), "format gemini") + inOrder + callers +
		"model public {\nserve " + up.name + " gemini-2\n}\n"})
	const body = `{"contents":[{"parts":[{"text":"Hello"}]}]}`
	r := st.do(http.MethodPost, "/v1beta/models/public:generateContent?key="+secret3+"&alt=json", body)
	if r.StatusCode != http.StatusOK || r.body != geminiAnswer {
		t.Errorf("%s %q\n%s", r.Status, r.body, st.explain(r.id()))
	}
	st.expectAttempts(r, "k1 429 rate_limited", "k2 200 ok")
	for i, h := range up.expect(t, 2) {
		if got, want := h.RequestURI, "/v1beta/models/gemini-2:generateContent?alt=json"; got != want {
			t.Errorf("attempt %d: asked %s, want %s", i+1, got, want)
		}
		if secret := []string{secret1, secret2}[i]; h.Header.Get("X-Goog-Api-Key") != secret || h.body != body {
			t.Errorf("attempt %d: header %v, body %q", i+1, h.Header, h.body)
		}
	}
}

func TestRefusalsHaveTheFormatOfTheCaller(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)}) // which speaks OpenAI's format only
	for _, c := range []struct{ path, body, want string }{
		{"/v1/messages", `{"model":"m"}`, `{"type":"error","error":{"type":"not_found_error"`},
		{"/v1beta/models/m:generateContent", `{}`, `{"error":{"code":404,`},
		{"/v1beta/models/m:streamGenerateContent", `{}`, `{"error":{"code":404,`},
		{chatPath, `{"model":"x"}`, `{"error":{"message":`},
	} {
		r := st.do(http.MethodPost, c.path, c.body)
		if r.StatusCode != http.StatusNotFound || !strings.HasPrefix(r.body, c.want) || r.Header.Get("X-Usher-Reason") != "model_not_found" {
			t.Errorf("%s: %s %s, want %s...", c.path, r.Status, r.body, c.want)
		}
		if d := st.decision(r.id()); d.Disposition != policy.ClientFault {
			t.Errorf("%s: disposition %s", c.path, d.Disposition)
		}
	}
	up.expect(t, 0)
}

// One name may stand for models of several formats.
func TestModelIsServedByThoseWhoSpeakTheFormat(t *testing.T) {
	openai, anthropic := newUpstream(t, chats()), newUpstream(t, answers(200, messageAnswer))
	st := serve(t, setup{usher: openai.provider() + anthropic.provider("format anthropic") + model(openai, anthropic)})
	for path, want := range map[string]*upstream{chatPath: openai, "/v1/messages": anthropic} {
		for range 3 {
			r := st.do(http.MethodPost, path, `{"model":"m"}`)
			if got := r.Header.Get("X-Usher-Candidate"); got != want.name+"/k1/m" {
				t.Errorf("%s is served by %q, want %s", path, got, want.name)
			}
		}
	}
}

package simulator_test

import (
	"strings"
	"testing"
	"time"
)

func startOpenAI(t *testing.T) string {
	t.Helper()
	return start(t, `simulated_provider `+t.Name()+` {
		tokens 6
		key k1 sk-one
	}`)
}

// sixTokens is the answer of startOpenAI.
func sixTokens(t *testing.T) string {
	t.Helper()
	return "provider=" + t.Name() + " key=k1 model=m is happy to"
}

func TestChatAnswersWholeAndStreamed(t *testing.T) {
	t.Parallel()
	url := startOpenAI(t)
	var whole struct {
		Object  string
		Model   string
		Choices []struct {
			Message      struct{ Role, Content string }
			FinishReason string `json:"finish_reason"`
		}
		Usage map[string]int
	}
	r := ask(t, "POST", url+"/v1/chat/completions", "sk-one", `{"model":"m","messages":[{"role":"user","content":"Hello"}]}`)
	r.decode(t, &whole)
	if r.status != 200 || whole.Object != "chat.completion" || whole.Model != "m" ||
		whole.Choices[0].Message.Content != sixTokens(t) || whole.Choices[0].FinishReason != "stop" ||
		whole.Usage["completion_tokens"] != 6 || whole.Usage["total_tokens"] != whole.Usage["prompt_tokens"]+6 {
		t.Errorf("status %d, body %s", r.status, r.body)
	}

	r = ask(t, "POST", url+"/v1/chat/completions", "sk-one",
		`{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`)
	text, finish := "", any(nil)
	events := r.events(t)
	for _, e := range events {
		for _, c := range e["choices"].([]any) {
			delta := c.(map[string]any)["delta"].(map[string]any)
			if s, ok := delta["content"].(string); ok {
				text += s
			}
			finish = c.(map[string]any)["finish_reason"]
		}
	}
	usage, _ := events[len(events)-1]["usage"].(map[string]any)
	if text != sixTokens(t) || finish != "stop" || usage["completion_tokens"] != 6.0 || len(events) != 1+6+1+1 {
		t.Errorf("text %q, finish %v, usage %v in %s", text, finish, usage, r.body)
	}
	if !strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") || !strings.HasSuffix(r.body, "data: [DONE]\n\n") {
		t.Errorf("not a whole stream: %v %s", r.header, r.body)
	}
}

func TestARequestMayAskForLess(t *testing.T) {
	t.Parallel()
	url := startOpenAI(t)
	for name, limit := range map[string]string{
		"older": `"max_tokens":2`, "newer": `"max_completion_tokens":2`,
	} {
		r := ask(t, "POST", url+"/v1/chat/completions", "sk-one", `{"model":"m","messages":[],`+limit+`}`)
		if !strings.Contains(r.body, `key=k1"`) || !strings.Contains(r.body, `"finish_reason":"length"`) {
			t.Errorf("%s: %s", name, r.body)
		}
	}
}

func TestCompletionsAnswerWholeAndStreamed(t *testing.T) {
	t.Parallel()
	url := startOpenAI(t)
	var whole struct {
		Object  string
		Choices []struct{ Text string }
	}
	r := ask(t, "POST", url+"/v1/completions", "sk-one", `{"model":"m","prompt":"Hello"}`)
	r.decode(t, &whole)
	if whole.Object != "text_completion" || whole.Choices[0].Text != sixTokens(t) {
		t.Error(r.body)
	}
	var text strings.Builder
	r = ask(t, "POST", url+"/v1/completions", "sk-one", `{"model":"m","prompt":"Hello","stream":true}`)
	for _, e := range r.events(t) {
		text.WriteString(e["choices"].([]any)[0].(map[string]any)["text"].(string))
	}
	if text.String() != sixTokens(t) {
		t.Error(r.body)
	}
}

func TestResponsesAnswerWholeAndStreamed(t *testing.T) {
	t.Parallel()
	url := startOpenAI(t)
	var whole struct {
		Status string
		Output []struct {
			Content []struct{ Type, Text string }
		}
		Usage map[string]any
	}
	r := ask(t, "POST", url+"/v1/responses", "sk-one", `{"model":"m","input":"Hello"}`)
	r.decode(t, &whole)
	if whole.Status != "completed" || whole.Output[0].Content[0].Text != sixTokens(t) || whole.Usage["output_tokens"] != 6.0 {
		t.Error(r.body)
	}

	r = ask(t, "POST", url+"/v1/responses", "sk-one", `{"model":"m","input":"Hello","stream":true,"max_output_tokens":2}`)
	var kinds []string
	for i, e := range r.events(t) {
		kinds = append(kinds, strings.TrimPrefix(e["type"].(string), "response."))
		if e["sequence_number"] != float64(i) {
			t.Errorf("event %d has the number %v", i, e["sequence_number"])
		}
	}
	const want = "created in_progress output_item.added content_part.added output_text.delta output_text.delta " +
		"output_text.done content_part.done output_item.done incomplete"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
}

func TestOtherOperationsAnswer(t *testing.T) {
	t.Parallel()
	url := startOpenAI(t)
	for name, c := range map[string]struct{ method, path, body, want string }{
		"embedding":   {"POST", "embeddings", `{"model":"m","input":"a","dimensions":2}`, `"embedding":[`},
		"base64":      {"POST", "embeddings", `{"model":"m","input":["a","b"],"encoding_format":"base64"}`, `"index":1`},
		"tokens":      {"POST", "embeddings", `{"model":"m","input":[1,2,3]}`, `"index":0`},
		"moderation":  {"POST", "moderations", `{"input":"a"}`, `"flagged":false`},
		"image":       {"POST", "images/generations", `{"prompt":"a","n":2}`, `"b64_json":"iVBOR`},
		"models":      {"GET", "models", ``, `"owned_by":"Test`},
		"model":       {"GET", "models/gpt-4o", ``, `"id":"gpt-4o"`},
		"path prefix": {"GET", "and/more/models", ``, `"object":"list"`},
	} {
		r := ask(t, c.method, url+"/v1/"+c.path, "sk-one", c.body)
		if r.status != 200 || !strings.Contains(r.body, c.want) {
			t.Errorf("%s: status %d, want 200 with %s in %s", name, r.status, c.want, r.body)
		}
	}
}

func TestEmbeddingsDependOnTheInputOnly(t *testing.T) {
	t.Parallel()
	url := startOpenAI(t)
	vector := func(input string) string {
		r := ask(t, "POST", url+"/v1/embeddings", "sk-one", `{"model":"m","input":`+input+`}`)
		_, v, _ := strings.Cut(r.body, `"embedding":`)
		v, _, _ = strings.Cut(v, "]")
		return v
	}
	if a, again, b := vector(`"a"`), vector(`["a"]`), vector(`"b"`); a != again || a == b {
		t.Errorf("vectors of a, a, b: %s, %s, %s", a, again, b)
	}
}

func TestErrorsHaveTheShapeOfTheAPI(t *testing.T) {
	t.Parallel()
	url := startOpenAI(t)
	for name, c := range map[string]struct {
		method, path, key, body string
		status                  int
		code                    string
	}{
		"unknown key":  {"POST", "chat/completions", "sk-other", `{}`, 401, "invalid_api_key"},
		"no key":       {"POST", "chat/completions", "", `{}`, 401, "invalid_api_key"},
		"broken body":  {"POST", "chat/completions", "sk-one", `{`, 400, "invalid_request"},
		"no body":      {"POST", "chat/completions", "sk-one", ``, 400, "invalid_request"},
		"unknown path": {"POST", "nothing/here", "sk-one", `{}`, 404, "not_found"},
		"wrong method": {"GET", "chat/completions", "sk-one", ``, 404, "not_found"},
	} {
		r := ask(t, c.method, url+"/v1/"+c.path, c.key, c.body)
		var body struct {
			Error struct{ Message, Type, Code string }
		}
		r.decode(t, &body)
		if r.status != c.status || body.Error.Code != c.code || body.Error.Message == "" || body.Error.Type == "" {
			t.Errorf("%s: status %d, want %d %s: %s", name, r.status, c.status, c.code, r.body)
		}
	}
}

func TestAnswersTakeTheirTime(t *testing.T) {
	t.Parallel()
	url := start(t, `simulated_provider slow {
		latency 100ms
		tokens 5
		tokens_per_second 50
	}`)
	const least = 100*time.Millisecond + 4*time.Second/50
	for _, stream := range []string{"true", "false"} {
		begin := time.Now()
		r := ask(t, "POST", url+"/v1/chat/completions", "", `{"model":"m","messages":[],"stream":`+stream+`}`)
		if took := time.Since(begin); r.status != 200 || took < least {
			t.Errorf("stream %s: status %d after %v, want at least %v", stream, r.status, took, least)
		}
	}
}

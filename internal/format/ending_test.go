package format_test

import (
	"net/http"
	"testing"

	"github.com/usherproxy/usher/internal/format"
)

// How servers of OpenAI's format end their streams. Those that say why a choice
// ended promise it in each chunk, or do not mention it until then; some never do.
func TestEndsOfStreams(t *testing.T) {
	t.Parallel()
	chunk := func(rest string) string { return `data: {"choices":[{"delta":{"content":"H"}` + rest + "}]}\n\n" }
	const stop, done = `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n", "data: [DONE]\n\n"
	for name, c := range map[string]struct {
		text            string
		done, truncated bool
	}{
		"vLLM, llama.cpp, LM Studio":   {chunk(`,"finish_reason":null`) + stop + done, true, false},
		"without [DONE]":               {chunk(`,"finish_reason":null`) + stop, true, false},
		"LiteLLM, LocalAI":             {chunk("") + stop + done, true, false},
		"an early Ollama":              {chunk(`,"finish_reason":""`) + stop + done, true, false},
		"null throughout":              {chunk(`,"finish_reason":null`) + done, true, false},
		"never a word of it":           {chunk("") + chunk(""), false, false},
		"cut, at vLLM":                 {chunk(`,"finish_reason":null`), false, true},
		"cut, at an early Ollama":      {chunk(`,"finish_reason":""`), false, true},
		"cut after a role":             {`data: {"choices":[{"delta":{"role":"a"},"finish_reason":null}]}` + "\n\n" + chunk(""), false, true},
		"cut inside an event, without": {chunk("") + chunk("")[:20], false, true},
	} {
		m := format.NewMeter(operation(t, http.MethodPost, chatPath), header(".sse"), true)
		_, _ = m.Write([]byte(c.text))
		if err := m.Close(); err != nil || m.Done() != c.done || m.Truncated() != c.truncated || m.Beginning() != format.Begun {
			t.Errorf("%s: done %t and truncated %t, want %t and %t (%v)", name, m.Done(), m.Truncated(), c.done, c.truncated, err)
		}
	}
}

package format_test

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestMinInputTokensAreTheWordsOfThePrompt(t *testing.T) {
	t.Parallel()
	const chat, responses, messages, generate = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1beta/models/m:generateContent"
	for _, c := range []struct {
		name, path, body string
		want             int64
	}{
		{"a message", chat, `{"model":"m","messages":[{"role":"user","content":"Hello there, world"}]}`, 3},
		{"spaces and escapes", chat, `{"model":"m","messages":[{"content":"  a\n\nb\t\"c d\" \\ e\u00e9 "}]}`, 6},
		{"parts", chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"two words"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA AA"}}]}]}`, 2},
		{"calls of tools", chat, `{"model":"m","messages":[{"content":null,"tool_calls":[{"id":"call 1","function":{"name":"do it","arguments":"{\"a\": 1}"}}]}]}`, 2},
		{"other members", chat, `{"model":"m","user":"one two","metadata":{"content":"three four"},"messages":[]}`, 0},
		{"white space of JSON", chat, "{\"model\":\"m\",\"messages\" : [ { \"content\"\n : \"a b\" , \"name\" : \"c d\" } ]}", 2},
		{"a word of any length", chat, `{"model":"m","messages":[{"content":"` + strings.Repeat("x", 1000) + `"}]}`, 1},
		{"a string as input", responses, `{"model":"m","instructions":"be brief","input":"a b c"}`, 5},
		{"items", responses, `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"a b"}]},{"type":"function_call_output","output":"c d"}]}`, 4},
		{"a prompt that is cut", responses, `{"model":"m","input":"a b c","truncation":"auto"}`, 0},
		{"a prompt that is not cut", responses, `{"model":"m","truncation":"disabled","input":"a b c"}`, 3},
		{"blocks", messages, `{"model":"m","system":[{"type":"text","text":"be brief"}],"messages":[{"role":"user","content":"a b"}]}`, 4},
		{"gemini", generate, `{"systemInstruction":{"parts":[{"text":"be brief"}]},"contents":[{"role":"the user","parts":[{"text":"a b"},{"inlineData":{"data":"x y"}}]}]}`, 4},
		{"several prompts", "/v1/embeddings", `{"model":"m","input":["a b", "c d"]}`, 0},
		{"no tokens at all", "/v1/messages/count_tokens", `{"model":"m","messages":[{"content":"a b"}]}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, err := operation(t, "POST", c.path).Scan(c.path, "application/json", []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if b.MinInputTokens != c.want {
				t.Errorf("at least %d tokens, want %d", b.MinInputTokens, c.want)
			}
		})
	}
}

// FuzzMinInputTokens asks of any text that its words are counted as Go does.
func FuzzMinInputTokens(f *testing.F) {
	for _, s := range []string{"", " ", "a b", "\"\\\n", "\u2028 <&>", "a\tb\r\nc", `"content": "x y"`} {
		f.Add(s)
	}
	op := operation(f, "POST", "/v1/responses")
	f.Fuzz(func(t *testing.T, text string) {
		body, err := json.Marshal(map[string]any{"model": "m", "input": []any{map[string]any{"id": text, "content": text, "role": text}}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := op.Scan("/v1/responses", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		spaces := func(r rune) bool { return strings.ContainsRune(" \n\t\r", r) }
		if want := int64(len(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), spaces))); b.MinInputTokens != want {
			t.Errorf("%q has %d words, want %d", text, b.MinInputTokens, want)
		}
		if b.MinInputTokens > b.InputTokens {
			t.Errorf("%q has at least %d and at most %d tokens", text, b.MinInputTokens, b.InputTokens)
		}
	})
}

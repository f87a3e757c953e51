package format_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

const (
	chatPath      = "/v1/chat/completions"
	responsesPath = "/v1/responses"
	imagePath     = "/v1/images/generations"
	messagesPath  = "/v1/messages"
	generatePath  = "/v1beta/models/gem-1:generateContent"
	streamPath    = "/v1/models/gem-1:streamGenerateContent"
)

// A reading is all that a meter tells.
type reading struct {
	Usage   *policy.Usage
	Fault   *format.StreamFault
	Content bool
	Done    bool

	Beginning format.Beginning // not part of the string
}

func (r reading) String() string {
	var parts []string
	if r.Usage != nil {
		parts = append(parts, fmt.Sprintf("usage %d/%d cached %d reasoning %d",
			r.Usage.InputTokens, r.Usage.OutputTokens, r.Usage.CachedTokens, r.Usage.ReasoningTokens))
	}
	if r.Fault != nil {
		parts = append(parts, fmt.Sprintf("fault %s [%s %s]", r.Fault.Disposition, r.Fault.Type, r.Fault.Code))
	}
	if r.Content {
		parts = append(parts, "content")
	}
	if r.Done {
		parts = append(parts, "done")
	}
	return strings.Join(parts, ", ")
}

// header returns that of an answer of the media type that an extension has.
func header(name string) http.Header {
	media := map[string]string{
		".sse": "text/event-stream; charset=utf-8", ".json": "application/json", ".html": "text/html",
	}[filepath.Ext(name)]
	return http.Header{"Content-Type": {media}}
}

// read passes the pieces through a meter.
func read(op *format.Operation, h http.Header, stream bool, pieces ...[]byte) reading {
	m := format.NewMeter(op, h, stream)
	for _, p := range pieces {
		_, _ = m.Write(bytes.Clone(p))
	}
	_ = m.Close()
	return reading{m.Usage(), m.Err(), m.FirstContent(), m.Done(), m.Beginning()}
}

// pieces cuts p at random.
func pieces(p []byte, dice *rand.Rand) (out [][]byte) {
	for len(p) > 0 {
		n := 1 + dice.IntN(min(len(p), 40))
		out = append(out, p[:n])
		p = p[n:]
	}
	return out
}

func TestMeterReadsAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, file, want string }{
		{chatPath, "chat.json", "usage 19/110 cached 8 reasoning 100, content, done"},
		{chatPath, "chat.sse", "usage 3/2 cached 1 reasoning 0, content, done"},
		{chatPath, "chat_no_done.sse", "usage 3/2 cached 0 reasoning 0, content, done"},
		{chatPath, "chat_garbage_unterminated.sse", "usage 7/1 cached 0 reasoning 0, content"},
		{chatPath, "chat_tool_call.sse", "content"},
		{chatPath, "chat_reasoning.sse", "content"},
		{chatPath, "azure_preamble.sse", ""},
		{chatPath, "usage_in_every_chunk.sse", "usage 5/2 cached 0 reasoning 0, content"},
		{chatPath, "comments_only.sse", ""},
		{chatPath, "done_only.sse", "done"},
		{"/v1/completions", "completion.sse", "usage 2/1 cached 0 reasoning 0, content, done"},
		{chatPath, "chat_first_event_error.sse", "fault overloaded [server_error server_is_overloaded]"},
		{chatPath, "chat_named_error.sse", "fault overloaded [overloaded_error ]"},
		{chatPath, "chat_error_after_content.sse", "fault rate_limited [requests rate_limit_exceeded], content"},
		{chatPath, "vllm_error.sse", "fault context_length [BadRequestError ], done"},
		{chatPath, "openrouter_error.sse", "fault upstream_error [ 502]"},
		{chatPath, "error_as_success.json", "fault upstream_error [ 500], content, done"},
		{chatPath, "page.html", ""},
		{responsesPath, "responses.json", "usage 36/87 cached 30 reasoning 64, content, done"},
		{responsesPath, "responses_failed.json", "fault upstream_error [ server_error], content, done"},
		{responsesPath, "responses.sse", "usage 37/11 cached 3 reasoning 4, content, done"},
		{responsesPath, "responses_preamble.sse", ""},
		{responsesPath, "responses_overloaded.sse", "fault overloaded [error server_is_overloaded]"},
		{responsesPath, "responses_failed.sse", "fault rate_limited [ rate_limit_exceeded]"},
		{responsesPath, "responses_failed_without_reason.sse", "fault upstream_error [response.failed ]"},
		{responsesPath, "responses_incomplete.sse", "usage 1/2 cached 0 reasoning 0, content, done"},
		{"/v1/embeddings", "embeddings.json", "usage 8/0 cached 0 reasoning 0, content, done"},
		{"/v1/moderations", "moderation.json", "content, done"},
		{imagePath, "image.sse", "usage 50/50 cached 0 reasoning 0, content, done"},
		{messagesPath, "anthropic.json", "usage 125/12 cached 100 reasoning 7, content, done"},
		{messagesPath, "anthropic.sse", "usage 335/15 cached 300 reasoning 0, content, done"},
		{messagesPath, "anthropic_usage_at_the_end.sse", "usage 325/15 cached 300 reasoning 9, content"},
		{messagesPath, "anthropic_preamble.sse", "usage 25/1 cached 0 reasoning 0"},
		{messagesPath, "anthropic_empty.sse", "usage 25/2 cached 0 reasoning 0, content, done"},
		{messagesPath, "anthropic_overloaded.sse", "fault overloaded [overloaded_error ]"},
		{messagesPath, "anthropic_error_after_content.sse", "usage 25/1 cached 0 reasoning 0, fault rate_limited [rate_limit_error ], content"},
		{"/v1/messages/count_tokens", "anthropic_count.json", "usage 0/0 cached 0 reasoning 0, content, done"},
		{generatePath, "gemini.json", "usage 18/26 cached 4 reasoning 20, content, done"},
		{streamPath, "gemini.sse", "usage 8/5 cached 0 reasoning 3, content, done"},
		{streamPath, "gemini_list.json", "usage 8/2 cached 0 reasoning 0, content, done"},
		{streamPath, "gemini_list_error.json", "fault overloaded [UNAVAILABLE 503]"},
		{streamPath, "gemini_list_error_after_content.json", "fault rate_limited [RESOURCE_EXHAUSTED 429], content"},
		{streamPath, "gemini_error.sse", "usage 8/0 cached 0 reasoning 0, fault upstream_error [INTERNAL 500]"},
		{streamPath, "gemini_blocked.sse", "usage 8/0 cached 0 reasoning 0, content, done"},
		{streamPath, "gemini_preamble.sse", "usage 8/0 cached 0 reasoning 0"},
		{"/v1/models/gem-1:batchEmbedContents", "gemini_embeddings.json", "content, done"},
		{"/v1beta/models/gem-1:countTokens", "gemini_count.json", "usage 0/0 cached 0 reasoning 0, content, done"},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			op, text, h := operation(t, "POST", c.path), fixture(t, "answers/"+c.file), header(c.file)
			stream := filepath.Ext(c.file) != ".json" || c.path == streamPath
			if got := read(op, h, stream, text).String(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			dice := rand.New(rand.NewPCG(1, 2))
			for range 50 {
				if got := read(op, h, stream, pieces(text, dice)...).String(); got != c.want {
					t.Fatalf("in pieces: got %s, want %s", got, c.want)
				}
			}
			crlf := bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
			if got := read(op, h, stream, crlf).String(); got != c.want {
				t.Errorf("with CRLF: got %s, want %s", got, c.want)
			}
		})
	}
}

func TestMeterFindsTheFirstContent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data string
		want bool
	}{
		"a role":                  {`{"choices":[{"delta":{"role":"assistant"}}]}`, false},
		"an empty delta":          {`{"choices":[{"delta":{}}]}`, false},
		"empty members":           {`{"choices":[{"delta":{"role":"a","content":"","tool_calls":[],"x":null,"y":{},"z":false}}]}`, false},
		"no choice":               {`{"choices":[]}`, false},
		"choices of null":         {`{"choices":null}`, false},
		"a type that is a ping":   {`{"type":"ping"}`, false},
		"nothing":                 {``, false},
		"text":                    {`{"choices":[{"delta":{"content":"x"}}]}`, true},
		"a second choice":         {`{"choices":[{"delta":{}},{"delta":{"content":"x"}}]}`, true},
		"a refusal":               {`{"choices":[{"delta":{"refusal":"no"}}]}`, true},
		"an old function call":    {`{"choices":[{"delta":{"function_call":{"name":"f"}}}]}`, true},
		"reasoning":               {`{"choices":[{"delta":{"reasoning_content":"hm"}}]}`, true},
		"the end of a choice":     {`{"choices":[{"delta":{},"finish_reason":"content_filter"}]}`, true},
		"the text of completions": {`{"choices":[{"text":"x"}]}`, true},
		"a delta of another type": {`{"choices":[{"delta":"x"}]}`, true},
		"a very long chunk":       {`{"choices":[{"delta":{"role":"` + strings.Repeat("x", 20000) + `"}}]}`, true},
		"an unknown event":        {`{"a":1}`, true},
		"no JSON":                 {`hello`, true},
		"a longer [DONE]":         {`[DONE] and more than that`, true},
	} {
		if got := read(operation(t, "POST", chatPath), header(".sse"), true, []byte("data: "+c.data+"\n\n")); got.Content != c.want || got.Fault != nil {
			t.Errorf("%s: %s, want content %v", name, got, c.want)
		}
	}
}

func TestMeterFindsContentWhenItComes(t *testing.T) {
	t.Parallel()
	m := format.NewMeter(operation(t, "POST", chatPath), header(".sse"), true)
	for _, c := range []struct {
		text             string
		content, inEvent bool
	}{
		{": ping\n\n", false, false},
		{"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n", false, false},
		{"data: {\"choices\":[{\"delta\":{\"content\":\"\xE5", false, true},
		{"\x8C\x97\"}}]}\n", false, true},
		{"\n", true, false},
	} {
		n, err := m.Write([]byte(c.text))
		if n != len(c.text) || err != nil || m.FirstContent() != c.content || m.InEvent() != c.inEvent {
			t.Errorf("after %q: (%d, %v), content %v, in event %v; want content %v, in event %v",
				c.text, n, err, m.FirstContent(), m.InEvent(), c.content, c.inEvent)
		}
	}
}

func TestMeterTellsHowAnAnswerBegins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, file string
		want       format.Beginning
	}{
		{chatPath, "chat.json", format.Begun},
		{chatPath, "error_as_success.json", format.Broken},
		{responsesPath, "responses_failed.json", format.Broken},
		{chatPath, "page.html", format.Broken},
		{chatPath, "chat.sse", format.Begun},
		{chatPath, "chat_error_after_content.sse", format.Begun},
		{chatPath, "chat_first_event_error.sse", format.Broken},
		{chatPath, "azure_preamble.sse", format.Broken},
		{chatPath, "comments_only.sse", format.Broken},
		{chatPath, "done_only.sse", format.Broken},
		{responsesPath, "responses_overloaded.sse", format.Broken},
		{messagesPath, "anthropic_preamble.sse", format.Broken},
		{messagesPath, "anthropic_empty.sse", format.Begun},
		{messagesPath, "anthropic_overloaded.sse", format.Broken},
		{messagesPath, "anthropic_error_after_content.sse", format.Begun},
		{streamPath, "gemini_list.json", format.Begun},
		{streamPath, "gemini_list_error.json", format.Broken},
		{streamPath, "gemini_list_error_after_content.json", format.Begun},
		{streamPath, "gemini_error.sse", format.Broken},
		{streamPath, "gemini_blocked.sse", format.Begun},
		{streamPath, "gemini_preamble.sse", format.Broken},
	} {
		op, text, h := operation(t, "POST", c.path), fixture(t, "answers/"+c.file), header(c.file)
		if got := read(op, h, true, text).Beginning; got != c.want {
			t.Errorf("%s: %d, want %d", c.file, got, c.want)
		}
	}
	m := format.NewMeter(operation(t, "POST", chatPath), header(".json"), false)
	for _, c := range []struct {
		text string
		want format.Beginning
	}{{"\n", format.Unclear}, {`{"a":`, format.Unclear}, {"[1]", format.Unclear}, {"}", format.Begun}, {`{"error":1}`, format.Begun}} {
		if _, _ = m.Write([]byte(c.text)); m.Beginning() != c.want {
			t.Errorf("after %q: %d, want %d", c.text, m.Beginning(), c.want)
		}
	}
}

func TestMeterReadsWhatTheHeaderSays(t *testing.T) {
	t.Parallel()
	const (
		text   = `{"usage":{"prompt_tokens":1,"completion_tokens":2}}`
		event  = "data: " + text + "\n\n"
		usage  = "usage 1/2 cached 0 reasoning 0, content, done"
		events = "usage 1/2 cached 0 reasoning 0, content"
	)
	for name, c := range map[string]struct {
		header http.Header
		stream bool
		body   string
		want   string
	}{
		"no header":                  {nil, false, text, usage},
		"no header, a stream":        {nil, true, event, events},
		"another media type":         {http.Header{"Content-Type": {"audio/mpeg"}}, false, text, "content"},
		"a stream of another type":   {http.Header{"Content-Type": {"text/plain"}}, true, event, events},
		"JSON for a stream":          {http.Header{"Content-Type": {"application/json"}}, true, text, usage},
		"problem details":            {http.Header{"Content-Type": {"application/problem+json"}}, false, text, usage},
		"events unasked":             {http.Header{"Content-Type": {"text/event-stream"}}, false, event, events},
		"a media type in capitals":   {http.Header{"Content-Type": {"Text/Event-Stream; Charset=UTF-8"}}, false, event, events},
		"gzip":                       {http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, false, text, "content"},
		"gzip, nothing yet":          {http.Header{"Content-Encoding": {"gzip"}}, true, "", ""},
		"identity":                   {http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"Identity"}}, false, text, usage},
		"space only":                 {nil, false, " \r\n ", ""},
		"space before JSON":          {nil, false, " \n" + text, usage},
		"a JSON text that was cut":   {nil, false, `{"usage":{"prompt_tokens":1,"completion_tokens":2},"x":[`, events},
		"a usage that was cut":       {nil, false, `{"usage":{"prompt_tokens":1,"comp`, "content"},
		"usage of another kind":      {nil, false, `{"usage":{"seconds":1}}`, "content, done"},
		"usage of null":              {nil, false, `{"usage":null}`, "content, done"},
		"usage of both kinds":        {nil, false, `{"usage":{"prompt_tokens":7,"input_tokens":0,"output_tokens":3}}`, "usage 7/3 cached 0 reasoning 0, content, done"},
		"usage that cannot be":       {nil, false, `{"usage":{"prompt_tokens":-7,"completion_tokens":1e300}}`, "usage 0/2147483647 cached 0 reasoning 0, content, done"},
		"an error that is a word":    {nil, false, `{"error":"model not loaded"}`, "fault upstream_error [ ], content, done"},
		"errors that are none":       {nil, false, `{"error":null,"response":{"error":""}}`, "content, done"},
		"an error that is very long": {nil, false, `{"error":{"message":"` + strings.Repeat("x", 20000) + `"}}`, "fault upstream_error [ ], content, done"},
		"long words": {
			nil, false, `{"error":{"type":"` + strings.Repeat("x", 63) + `é"}}`,
			"fault upstream_error [" + strings.Repeat("x", 63) + " ], content, done",
		},
	} {
		if got := read(operation(t, "POST", chatPath), c.header, c.stream, []byte(c.body)).String(); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// Not parallel: it counts what is allocated.
func TestMeterHoldsLittleOfALargeAnswer(t *testing.T) {
	image := strings.Repeat("QUJD", 1<<18)
	for name, body := range map[string]string{
		".json": `{"data":[{"b64_json":"` + image + `"}],"usage":{"input_tokens":5,"output_tokens":6}}`,
		".sse":  `data: {"type":"image_generation.completed","b64_json":"` + image + `","usage":{"input_tokens":5,"output_tokens":6}}` + "\n\n",
	} {
		m := format.NewMeter(operation(t, "POST", imagePath), header(name), true)
		text := []byte(body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = m.Write(text)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%s: %d bytes allocated for an answer of %d", name, n, len(text))
		}
		if u := m.Usage(); u == nil || u.Total() != 11 || !m.Done() {
			t.Errorf("%s: usage %+v, done %v", name, u, m.Done())
		}
	}
}

// FuzzMeter holds that a meter tells the same whatever the split, and that its
// words are short.
func FuzzMeter(f *testing.F) {
	files, err := filepath.Glob("testdata/answers/*")
	if err != nil || len(files) == 0 {
		f.Fatal("no fixtures", err)
	}
	for _, file := range files {
		text := fixture(f, filepath.Join("answers", filepath.Base(file)))
		f.Add(text, filepath.Ext(file) == ".sse", uint64(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, stream bool, seed uint64) {
		for _, path := range []string{chatPath, messagesPath, streamPath} {
			op := operation(t, "POST", path)
			want := read(op, nil, stream, text)
			got := read(op, nil, stream, pieces(text, rand.New(rand.NewPCG(seed, seed)))...)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: in pieces %s, whole %s", path, got, want)
			}
			if f := want.Fault; f != nil && (!f.Disposition.Valid() || len(f.Type) > 64 || len(f.Code) > 64) {
				t.Fatalf("fault %+v", f)
			}
			if stream { // a list has another splitter
				want, got = read(op, header(".json"), true, text), read(op, header(".json"), true, pieces(text, rand.New(rand.NewPCG(seed, 1)))...)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%s as JSON: in pieces %s, whole %s", path, got, want)
				}
			}
		}
	})
}

// A stream that ends inside the data of an event has not told what that means:
// it is neither content nor an end.
func TestMeterMakesNothingOfHalfAnEvent(t *testing.T) {
	t.Parallel()
	const whole = "data: {\"choices\":[{\"delta\":{\"content\":\"H\"},\"finish_reason\":null}]}\n\n"
	for name, c := range map[string]struct {
		text      string
		beginning format.Beginning
		truncated bool
	}{
		"half of the first": {whole[:30], format.Broken, false},
		"half of the next":  {whole + whole[:30], format.Begun, true},
		"half of a word":    {"data: hel", format.Broken, false},
		"only the end":      {whole[:len(whole)-2], format.Begun, true},
		"the word of done":  {whole + "data: [DONE]", format.Begun, false},
		"half after done":   {whole + "data: [DONE]\n\ndata: {\"us", format.Begun, false},
	} {
		m := format.NewMeter(operation(t, http.MethodPost, "/v1/chat/completions"), http.Header{"Content-Type": {"text/event-stream"}}, true)
		_, _ = m.Write([]byte(c.text))
		_ = m.Close()
		if m.Beginning() != c.beginning || m.Truncated() != c.truncated {
			t.Errorf("%s: beginning %d and truncated %t, want %d and %t", name, m.Beginning(), m.Truncated(), c.beginning, c.truncated)
		}
	}
}

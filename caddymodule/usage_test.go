package caddymodule_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/usherproxy/usher/policy"
)

// plainStream is streamAnswer without the chunk of usage.
var plainStream = strings.Replace(streamAnswer, `data: {"id":"c1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`+"\n\n", "", 1)

func TestUsageIsAskedForAndTakenOutAgain_B19(t *testing.T) {
	const whole, not = `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`, `{"model":"m","stream":true,"stream_options":{"include_usage":false}}`
	for name, c := range map[string]struct{ option, body, sent, want string }{
		"not given":        {"stream_usage", `{"model":"m","stream":true}`, `{"stream_options":{"include_usage":true},"model":"m","stream":true}`, plainStream},
		"false":            {"stream_usage", not, whole, plainStream},
		"true":             {"stream_usage", whole, whole, streamAnswer},
		"without the word": {"", not, not, streamAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, streams(streamAnswer))
			st := serve(t, setup{usher: up.provider(c.option) + model(up)})
			r := st.ask(c.body, http.StatusOK)
			if r.body != c.want {
				t.Errorf("got\n%s, want\n%s", r.body, c.want)
			}
			if h := up.expect(t, 1)[0]; h.body != c.sent || h.ContentLength != int64(len(c.sent)) {
				t.Errorf("the provider got %s, want %s", h.body, c.sent)
			}
			if u := st.decision(r.id()).Attempts[0].Usage; u == nil || u.InputTokens != 3 || u.OutputTokens != 2 {
				t.Errorf("usage %+v, want 3 + 2", u)
			}
		})
	}
}

// An answer that is no stream, though one was asked for, passes as it is, and so
// do those of other providers.
func TestWhatWasNotAskedForPassesAsItIs(t *testing.T) {
	asked, plain := newUpstream(t, breaks(), chats()), newUpstream(t, streams(streamAnswer))
	st := serve(t, setup{usher: asked.providerOf(key(1), "stream_usage") + plain.provider() + inOrder + model(asked, plain)})
	r := st.ask(streamBody, http.StatusOK)
	if r.body != streamAnswer {
		t.Errorf("got %s", r.body)
	}
	if h := plain.expect(t, 1)[0]; h.body != streamBody {
		t.Errorf("the provider got %s, want %s", h.body, streamBody)
	}
	if r := st.ask(streamBody, http.StatusOK); r.body != chatAnswer {
		t.Errorf("got %s", r.body)
	}
}

// Who leaves early has used what was told until then, and nobody guesses.
func TestUsageOfStreamsThatAreLeft_B21(t *testing.T) {
	for name, c := range map[string]struct {
		format, path, first string
		want                *policy.Usage
	}{
		"told at the start": {
			"format anthropic", "/v1/messages", messageStream[:strings.Index(messageStream, "event: message_delta")],
			&policy.Usage{InputTokens: 3, OutputTokens: 1},
		},
		"not told": {"format openai", chatPath, streamAnswer[:strings.Index(streamAnswer, `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},`)], nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			up := newUpstream(t, g.flows(c.first, ""))
			st := serve(t, setup{usher: up.provider(c.format) + model(up)})
			resp, err := st.open("POST", c.path, `{"model":"m","stream":true,"max_tokens":9}`)
			if err != nil {
				t.Fatal(err)
			}
			after(t, g.arrived, "the stream")
			if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Fatal(err)
			}
			after(t, g.left, "the end of the stream")
			a := st.last().Attempts[0]
			if a.Disposition != policy.ClientGone || (a.Usage == nil) != (c.want == nil) || c.want != nil &&
				(a.Usage.InputTokens != c.want.InputTokens || a.Usage.OutputTokens != c.want.OutputTokens) {
				t.Errorf("%s with usage %+v, want %+v", a.Disposition, a.Usage, c.want)
			}
		})
	}
}

// A provider that compresses although it was asked not to is passed on, and its
// usage is not known.
func TestCompressedStreamsPassAsTheyCome_B11(t *testing.T) {
	packed := compressed(t, "gzip", streamAnswer)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		streams(packed)(w, nil)
	})
	st := serve(t, setup{usher: up.provider("stream_usage") + model(up)})
	r := st.ask(streamBody, http.StatusOK, header("Accept-Encoding", "gzip, br, zstd"))
	if r.body != packed || r.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%d bytes, want %d, as %q", len(r.body), len(packed), r.Header.Get("Content-Encoding"))
	}
	if h := up.expect(t, 1)[0]; h.Header.Get("Accept-Encoding") != "identity" {
		t.Errorf("Accept-Encoding %q", h.Header.Get("Accept-Encoding"))
	}
	if d := st.decision(r.id()); d.Disposition != policy.OK || d.Attempts[0].Usage != nil {
		t.Errorf("%s with usage %+v", d.Disposition, d.Attempts[0].Usage)
	}
}

// Sounds and pictures tell their usage in tokens, or in nothing that is one.
func TestUsageOfSoundsAndPictures(t *testing.T) {
	for name, c := range map[string]struct {
		path, media, body string
		in, out           int64
		known             bool
	}{
		"transcription":        {transcriptions, "application/json", `{"text":"Hi","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"audio_tokens":14},"output_tokens":2}}`, 14, 2, true},
		"by seconds":           {transcriptions, "application/json", `{"text":"Hi","usage":{"type":"duration","seconds":9}}`, 0, 0, false},
		"subtitles":            {transcriptions, "text/vtt", "WEBVTT\n", 0, 0, false},
		"transcription stream": {transcriptions, "text/event-stream", `data: {"type":"transcript.text.delta","delta":"Hi"}` + "\n\n" + `data: {"type":"transcript.text.done","text":"Hi","usage":{"input_tokens":14,"output_tokens":2}}` + "\n\n", 14, 2, true},
		"speech":               {"/v1/audio/speech", "audio/mpeg", "\xff\xfb\x90", 0, 0, false},
		"speech stream":        {"/v1/audio/speech", "text/event-stream", `data: {"type":"speech.audio.delta","audio":"AA=="}` + "\n\n" + `data: {"type":"speech.audio.done","usage":{"input_tokens":3,"output_tokens":40}}` + "\n\n", 3, 40, true},
		"picture":              {"/v1/images/edits", "application/json", `{"data":[{"b64_json":"` + strings.Repeat("A", 100_000) + `"}],"usage":{"input_tokens":50,"output_tokens":6000}}`, 50, 6000, true},
		"picture stream":       {"/v1/images/edits", "text/event-stream", `data: {"type":"image_edit.completed","b64_json":"` + strings.Repeat("A", 100_000) + `","usage":{"input_tokens":50,"output_tokens":6000}}` + "\n\n", 50, 6000, true},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.media)
				_, _ = w.Write([]byte(c.body)) // whoever does not read it has left
			})
			st := serve(t, setup{usher: up.provider() + model(up)})
			body, media := `{"model":"m"}`, header("Content-Type", "application/json")
			if c.path == transcriptions {
				body, media = transcription("m", "x"), isForm
			}
			r := st.do("POST", c.path, body, media)
			if r.StatusCode != http.StatusOK || r.body != c.body {
				t.Errorf("%s %.200q", r.Status, r.body)
			}
			u := st.decision(r.id()).Attempts[0].Usage
			if (u != nil) != c.known || u != nil && (u.InputTokens != c.in || u.OutputTokens != c.out) {
				t.Errorf("usage %+v, want %d + %d", u, c.in, c.out)
			}
		})
	}
}

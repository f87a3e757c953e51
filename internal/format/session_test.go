package format_test

import (
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/format"
)

// frame returns one frame of a server.
func frame(first byte, payload string) string {
	head := []byte{first}
	switch n := len(payload); {
	case n < 126:
		head = append(head, byte(n))
	case n < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 127), uint64(n))
	}
	return string(head) + payload
}

func sessionOf(t testing.TB, upgrade bool) *format.Operation {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/v1/realtime?model=m", nil)
	if upgrade {
		r.Header.Set("Connection", "keep-alive, Upgrade")
		r.Header.Set("Upgrade", "websocket")
	}
	op, _ := format.Find(r)
	return op
}

const turn = `{"type":"response.done","response":{"usage":{"input_tokens":3,"output_tokens":2,"input_tokens_details":{"cached_tokens":1}}}}`

func TestSessionMeterAddsUpWhatIsTold(t *testing.T) {
	t.Parallel()
	if sessionOf(t, false) != nil {
		t.Error("a request without an upgrade is a session")
	}
	const text, more, last, ping, closing, binaryText = 0x81, 0x01, 0x80, 0x89, 0x88, 0x82
	stream := frame(text, `{"type":"session.created"}`) + frame(text, turn) +
		frame(more, turn[:20]) + frame(ping, "response.done") + frame(0x00, turn[20:40]) + frame(last, turn[40:]) +
		frame(binaryText, turn) + frame(0xc1, turn) + frame(text, "no JSON") + frame(text, "") +
		frame(text, strings.Repeat(" ", 70_000)+turn) +
		frame(text, `{"type":"response.output_text.delta","response":{"usage":{"input_tokens":9,"output_tokens":9}}}`) +
		frame(closing, "\x03\xe8bye")
	for _, size := range []int{1, 7, len(stream)} {
		m := format.NewSessionMeter(sessionOf(t, true))
		if m.Usage() != nil {
			t.Error("usage of nothing")
		}
		for chunk := range slices.Chunk([]byte(stream), size) {
			if n, err := m.Write(chunk); n != len(chunk) || err != nil {
				t.Fatal(n, err)
			}
		}
		if !m.Between() {
			t.Error("a frame has not ended")
		}
		if u := m.Usage(); u == nil || u.InputTokens != 9 || u.OutputTokens != 6 || u.CachedTokens != 3 {
			t.Errorf("usage %+v, want three turns", u)
		}
		if code, closed := m.Closed(); code != 1000 || !closed {
			t.Errorf("closed %t with %d", closed, code)
		}
	}
}

func TestCloseFrameSaysWhatFits(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"": "", "going away": "going away",
		strings.Repeat("a", 123): strings.Repeat("a", 123),
		strings.Repeat("ä", 62):  strings.Repeat("ä", 61),
	} {
		got := string(format.CloseFrame(1001, reason))
		if got != frame(0x88, "\x03\xe9"+want) {
			t.Errorf("%q becomes %q", reason, got)
		}
		m := format.NewSessionMeter(sessionOf(t, true))
		_, _ = m.Write([]byte(got[:len(got)-1]))
		if m.Between() {
			t.Errorf("%q ends before its end", reason)
		}
		_, _ = m.Write([]byte(got[len(got)-1:]))
		if code, closed := m.Closed(); code != 1001 || !closed || !m.Between() {
			t.Errorf("%q: closed %t with %d", reason, closed, code)
		}
	}
}

// FuzzSessionMeter holds that what is found does not depend on the split.
func FuzzSessionMeter(f *testing.F) {
	f.Add(frame(0x81, turn)+frame(0x88, ""), 7)
	f.Add(frame(0x01, turn[:9])+frame(0x80, turn[9:]), 3)
	f.Add("\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00{", 5)
	op := sessionOf(f, true)
	f.Fuzz(func(t *testing.T, stream string, at int) {
		at = min(max(at, 0), len(stream))
		whole, cut := format.NewSessionMeter(op), format.NewSessionMeter(op)
		_, _ = whole.Write([]byte(stream))
		_, _ = cut.Write([]byte(stream[:at]))
		_, _ = cut.Write([]byte(stream[at:]))
		a, b := whole.Usage(), cut.Usage()
		if (a == nil) != (b == nil) || a != nil && *a != *b {
			t.Errorf("cut at %d: %+v, whole %+v", at, b, a)
		}
		code, closed := whole.Closed()
		if c, is := cut.Closed(); c != code || is != closed {
			t.Errorf("cut at %d: closed %t %d, whole %t %d", at, is, c, closed, code)
		}
	})
}

func TestSpliceSessionChangesTheModelOnly(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"":                      "",
		"model=m":               "model=a%2Fb+c",
		"a=%20b&model=m&intent": "a=%20b&model=a%2Fb+c&intent",
		"a=1":                   "a=1",
	} {
		if got := format.SpliceSession(query, "a/b c"); got != want {
			t.Errorf("%q becomes %q, want %q", query, got, want)
		}
	}
}

func TestSubprotocolsLoseTheirKeys(t *testing.T) {
	t.Parallel()
	for offered, want := range map[string]string{
		"realtime": "realtime",
		"realtime, openai-insecure-api-key.sk-1, v1": "realtime, v1",
		"OpenAI-Insecure-API-Key.sk-1":               "",
	} {
		h := http.Header{"Sec-Websocket-Protocol": {offered}}
		key := format.Credential(h, nil)
		if hasKey := strings.Contains(offered, "sk-1"); hasKey != (key == "sk-1") {
			t.Errorf("%s: key %q", offered, key)
		}
		format.StripCredentials(h, new(url.URL))
		if got := h.Get("Sec-Websocket-Protocol"); got != want {
			t.Errorf("%s becomes %q, want %q", offered, got, want)
		}
	}
}

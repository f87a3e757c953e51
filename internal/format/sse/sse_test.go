package sse_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/format/sse"
)

// decode returns the events of the pieces, one a line.
func decode(pieces ...string) string {
	var out, data strings.Builder
	d := sse.Decoder{
		Data: func(p []byte) { data.Write(p) },
		Event: func(name []byte) {
			fmt.Fprintf(&out, "%s=%q\n", name, data.String())
			data.Reset()
		},
	}
	for _, p := range pieces {
		d.Write([]byte(p))
	}
	d.Close()
	return out.String()
}

func TestDecoderFollowsTheStandard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ stream, want string }{
		"LF":                            {"data: a\n\ndata: b\n\n", "=\"a\"\n=\"b\"\n"},
		"CRLF":                          {"data: a\r\n\r\ndata: b\r\n\r\n", "=\"a\"\n=\"b\"\n"},
		"CR":                            {"data: a\r\rdata: b\r\r", "=\"a\"\n=\"b\"\n"},
		"mixed line ends":               {"data: a\r\ndata: b\rdata: c\n\r\n", "=\"a\\nb\\nc\"\n"},
		"no space after the colon":      {"data:a\n\n", "=\"a\"\n"},
		"only one space is dropped":     {"data:  a\n\n", "=\" a\"\n"},
		"a colon in the value":          {"data: {\"t\":\"k: v\"}\n\n", "=\"{\\\"t\\\":\\\"k: v\\\"}\"\n"},
		"several data lines":            {"data: {\"a\":\ndata: 1}\n\n", "=\"{\\\"a\\\":\\n1}\"\n"},
		"a data field without a value":  {"data\n\n", "=\"\"\n"},
		"empty data":                    {"data:\n\n", "=\"\"\n"},
		"two empty data lines":          {"data\ndata\n\n", "=\"\\n\"\n"},
		"a name":                        {"event: error\ndata: x\n\n", "error=\"x\"\n"},
		"a name after the data":         {"data: x\nevent: error\n\n", "error=\"x\"\n"},
		"the last name holds":           {"event: a\nevent: b\ndata: x\n\n", "b=\"x\"\n"},
		"a name without data is no one": {"event: a\n\ndata: x\n\n", "=\"x\"\n"},
		"comments":                      {": connected\n\n: ping\ndata: x\n: ping\n\n:\n\n", "=\"x\"\n"},
		"other fields":                  {"id: 7\nretry: 10\nfoo: bar\ndata: x\n\n", "=\"x\"\n"},
		"names are case-sensitive":      {"Data: x\n\ndata: y\n\n", "=\"y\"\n"},
		"a space before the name":       {" data: x\n\n", ""},
		"a longer name":                 {"database: x\n\n", ""},
		"a byte order mark":             {"\uFEFFdata: x\n\n", "=\"x\"\n"},
		"a second byte order mark":      {"\uFEFF\uFEFFdata: x\n\n", ""},
		"half a byte order mark":        {"\xEF\xBBdata: x\n\ndata: y\n\n", "=\"y\"\n"},
		"a last event without a blank":  {"data: a\n\ndata: b\n", "=\"a\"\n=\"b\"\n"},
		"a last line without an end":    {"data: a\n\nevent: e\ndata: b", "=\"a\"\ne=\"b\"\n"},
		"a last field without a value":  {"data: a\ndata", "=\"a\\n\"\n"},
		"nothing":                       {"", ""},
		"a very long name":              {"event: " + strings.Repeat("x", 100) + "\ndata: y\n\n", strings.Repeat("x", 64) + "=\"y\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := decode(c.stream); got != c.want {
				t.Errorf("whole:\n got %s\nwant %s", got, c.want)
			}
			for i := range c.stream {
				if got := decode(c.stream[:i], c.stream[i:]); got != c.want {
					t.Errorf("split at %d:\n got %s\nwant %s", i, got, c.want)
				}
			}
			if got := decode(strings.Split(c.stream, "")...); got != c.want {
				t.Errorf("byte by byte:\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestDecoderSplitsInsideACharacter(t *testing.T) {
	t.Parallel()
	got := decode("data: {\"c\":\"\xE5", "\x8C\x97\"}\n\n")
	if want := fmt.Sprintf("=%q\n", "{\"c\":\"\u5317\"}"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestInEventTellsWhereNothingElseMayBeSent(t *testing.T) {
	t.Parallel()
	for stream, want := range map[string]bool{
		"":                    false,
		": pi":                true,
		": ping\n":            false,
		"da":                  true,
		"data: x":             true,
		"data: x\n":           true,
		"data: x\n\n":         false,
		"data: x\r":           true,
		"data: x\r\r":         false,
		"event: e\n":          true,
		"data: x\n\n: ping\n": false,
	} {
		d := sse.Decoder{Data: func([]byte) {}, Event: func([]byte) {}}
		d.Write([]byte(stream))
		if got := d.InEvent(); got != want {
			t.Errorf("after %q: InEvent() = %v, want %v", stream, got, want)
		}
	}
}

// reference reads a whole stream as the standard says it, word by word.
func reference(stream string) string {
	var out strings.Builder
	stream = strings.TrimPrefix(stream, "\uFEFF")
	stream = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream)
	var name, data string
	has := false
	for line := range strings.SplitSeq(stream+"\n\n", "\n") {
		if line == "" {
			if has {
				fmt.Fprintf(&out, "%s=%q\n", name, strings.TrimSuffix(data, "\n"))
			}
			name, data, has = "", "", false
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data, has = data+value+"\n", true
		case "event":
			name = value[:min(len(value), 64)]
		}
	}
	return out.String()
}

// FuzzDecoder holds that the events are those of the standard whatever the
// split.
func FuzzDecoder(f *testing.F) {
	f.Add("data: a\r\n\r\nevent: x\rdata:b\ndata\n\n: c\n\ndata: last", uint8(3), uint8(9))
	f.Add("\uFEFFdata: a\n\n", uint8(1), uint8(1))
	f.Add("\xEF\xBBdata: a\n\n\r\r\n", uint8(2), uint8(200))
	f.Fuzz(func(t *testing.T, stream string, a, b uint8) {
		want := reference(stream)
		i := int(a) % (len(stream) + 1)
		j := i + int(b)%(len(stream)-i+1)
		for _, pieces := range [][]string{
			{stream},
			{stream[:i], stream[i:j], stream[j:]},
			bytesOf(stream),
		} {
			if got := decode(pieces...); got != want {
				t.Errorf("%q:\n got %s\nwant %s", pieces, got, want)
			}
		}
	})
}

// bytesOf splits s between all bytes, also inside characters.
func bytesOf(s string) []string {
	out := make([]string, len(s))
	for i := range len(s) {
		out[i] = s[i : i+1]
	}
	return out
}

func BenchmarkDecoder(b *testing.B) {
	event := []byte("data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"},\"finish_reason\":null}]}\n\n")
	d := sse.Decoder{Data: func([]byte) {}, Event: func([]byte) {}}
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		d.Write(event)
	}
}

func ExampleDecoder() {
	var data []byte
	d := sse.Decoder{
		Data: func(p []byte) { data = append(data, p...) },
		Event: func(name []byte) {
			fmt.Printf("%s: %s\n", name, data)
			data = data[:0]
		},
	}
	d.Write([]byte("event: greeting\r\ndata: hel"))
	d.Write([]byte("lo\r\n\r\n"))
	// Output: greeting: hello
}

package format_test

import (
	"bytes"
	"net/http"
	"net/url"
	"testing"

	"github.com/usherproxy/usher/internal/format"
)

func BenchmarkFind(b *testing.B) {
	for _, path := range []string{chatPath, "/v1/messages", "/v1beta/models/gem-1:generateContent", "/nowhere"} {
		b.Run(path, func(b *testing.B) {
			r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}}
			b.ReportAllocs()
			for b.Loop() {
				format.Find(r)
			}
		})
	}
}

func BenchmarkMeter(b *testing.B) {
	chunk := []byte("data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"},\"logprobs\":null,\"finish_reason\":null}]}\n\n")
	for name, c := range map[string]struct {
		file  string
		piece []byte
	}{
		"event":           {".sse", chunk},
		"32KiB of events": {".sse", bytes.Repeat(chunk, 32<<10/len(chunk))},
	} {
		b.Run(name, func(b *testing.B) {
			m := format.NewMeter(operation(b, "POST", chatPath), header(c.file), true)
			b.SetBytes(int64(len(c.piece)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = m.Write(c.piece)
			}
		})
	}
	b.Run("whole answer", func(b *testing.B) {
		op, h, text := operation(b, "POST", chatPath), header(".json"), fixture(b, "answers/chat.json")
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			read(op, h, false, text)
		}
	})
}

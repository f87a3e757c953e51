package commit_test

import (
	"io"
	"strings"
	"testing"
)

func BenchmarkHold(b *testing.B) {
	for name, c := range map[string]struct{ media, text string }{
		"stream": {events, role + text},
		"JSON":   {json, `{"x":"` + strings.Repeat("x", 2000) + `"}`},
	} {
		b.Run(name, func(b *testing.B) {
			op, body := chat(b), []byte(c.text)
			b.ReportAllocs()
			for b.Loop() {
				resp := answer(c.media, &source{pieces: [][]byte{body}, err: io.EOF})
				gate.Hold(b.Context(), op, resp, true)
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
}

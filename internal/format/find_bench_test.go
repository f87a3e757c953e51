package format_test

import (
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

package caddymodule_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/usherproxy/usher/internal/freeport"
)

func init() { caddy.RegisterModule(new(instant)) }

// instant is a transport whose provider answers at once, without a connection.
type instant struct{}

// CaddyModule tells the module's name.
func (*instant) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.transport.instant", New: func() caddy.Module { return new(instant) }}
}

// UnmarshalCaddyfile takes no options.
func (*instant) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

var instantAnswer = []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1764590000,"model":"m","choices":[{"index":0,"message":` +
	`{"role":"assistant","content":"` + strings.Repeat("words ", 120) + `"},"finish_reason":"stop"}],` +
	`"usage":{"prompt_tokens":200,"completion_tokens":100,"total_tokens":300}}`)

// RoundTrip answers.
func (*instant) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: req, ContentLength: int64(len(instantAnswer)),
		Header: http.Header{"Content-Type": {"application/json"}, "Content-Length": {fmt.Sprint(len(instantAnswer))}},
		Body:   io.NopCloser(bytes.NewReader(instantAnswer)),
	}, nil
}

// discard is the answer of a server that nobody reads.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Flush()                      {}

// BenchmarkRequest measures what a request costs on its way through the server,
// without any connection but that to a plugin: beside Caddy's own proxy, with no
// policy, and with those that are built in.
func BenchmarkRequest(b *testing.B) {
	b.Setenv("OTEL_SDK_DISABLED", "true")
	b.Setenv("TEST_KEY_1", secret1)
	for _, mode := range []struct{ name, global, usher string }{
		{name: "caddy"},
		{name: "none", usher: "select none\nadmit none"},
		{name: "inline/keys", global: "inline keys", usher: "select keys\nadmit none"},
		{name: "inline/keys+fifo", global: "inline keys fifo", usher: "select keys\nadmit fifo"},
		{name: "process/keys", usher: "select keys\nadmit none"},
		{name: "process/keys+fifo", usher: "select keys\nadmit fifo"},
	} {
		b.Run(mode.name, func(b *testing.B) {
			site := "reverse_proxy 127.0.0.1:1 {\ntransport instant\n}\n"
			if mode.usher != "" {
				site = "usher {\nprovider p http://127.0.0.1:1 {\ntransport instant\n" +
					"key k1 {env.TEST_KEY_1} {\nlimit concurrency 100000\n}\nkey k2 {env.TEST_KEY_1} {\nlimit concurrency 100000\n}\n}\nmodel m p\n" + mode.usher + "\n}\n"
			}
			server := benchmarkServer(b, mode.global, site)
			body := []byte(`{"model":"m","stream":false,"messages":[{"role":"user","content":"` + strings.Repeat("words ", 170) + `"}]}`)
			b.ReportAllocs()
			before := cpu(b)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					req, _ := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://127.0.0.1/v1/chat/completions", bytes.NewReader(body))
					req.Header.Set("Content-Type", "application/json")
					req.Header.Set("User-Agent", "benchmark")
					req.RemoteAddr = "127.0.0.1:2"
					server.ServeHTTP(&discard{http.Header{}}, req)
				}
			})
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpu returns the time that this process has used of processors, in nanoseconds.
// Other than the time of a clock it does not grow with what else the machine does.
func cpu(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// benchmarkServer runs a Caddy whose server is called and not connected to.
func benchmarkServer(b *testing.B, global, site string) *caddyhttp.Server {
	b.Helper()
	if global != "" {
		global = "usher {\n" + global + "\n}\n"
	}
	text := fmt.Sprintf("{\nadmin off\npersist_config off\nlog {\noutput discard\n}\nstorage file_system %s\n%s}\nhttp://127.0.0.1:%d {\n%s}\n", b.TempDir(), global, freeport.ForTest(b), site)
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := caddy.Load(config, true); err != nil {
		b.Fatal(err)
	}
	app, err := caddy.ActiveContext().App("http")
	if err != nil {
		b.Fatal(err)
	}
	return app.(*caddyhttp.App).Servers["srv0"]
}

package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/usherproxy/usher/internal/format"
)

// newProxy returns the standard library's reverse proxy over our transport,
// which chooses where each attempt goes. It sends each event of a stream at
// once.
func (h *Handler) newProxy() *httputil.ReverseProxy {
	errorLog, err := zap.NewStdLogAt(h.log, zapcore.DebugLevel)
	if err != nil {
		panic(err) // DebugLevel is a level
	}
	return &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      roundTripper{},
		ModifyResponse: modifyResponse,
		ErrorHandler:   handleError,
		BufferPool:     &buffers,
		ErrorLog:       errorLog,
	}
}

// unsentHeaders are the caller's headers that are of no business to a
// provider, besides credentials. A name that ends in a hyphen stands for all
// that begin with it.
var unsentHeaders = []string{
	"X-Usher-",
	"Traceparent", "Tracestate", "Baggage", "B3", "X-B3-", // of the caller's own traces
	"Connection", "Upgrade", "Te", "Trailer", "Expect", // of the caller's connection
	"Content-Encoding", // bodies are sent in plain
	"Accept-Encoding",  // answers are read on their way
	// Which account pays is for the key to say. A provider would refuse the
	// request of one that it is none of, and the key would be held to be bad.
	"Openai-Organization", "Openai-Project", "X-Goog-User-Project",
	// What makes another request of it, or an answer of nothing (304), which
	// would be held against the provider.
	"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "If-None-Match", "If-Modified-Since",
	// Who the caller is, and what it came through.
	"X-Forwarded-", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Fastly-Client-Ip", "Cf-", "Cdn-Loop", "Via",
}

// rewrite removes from the caller's request what must not reach a provider.
// The proxy has removed hop-by-hop headers.
func rewrite(pr *httputil.ProxyRequest) {
	header := pr.Out.Header
	format.StripCredentials(header, pr.Out.URL)
	deleteFields(header, unsentHeaders)
	if runOf(pr.In.Context()).op.Kind == format.Session {
		header.Set("Connection", "Upgrade")
		header.Set("Upgrade", "websocket")
		header.Del("Sec-Websocket-Extensions") // what is said is read on its way
	}
	header.Set("Accept-Encoding", "identity")
	if _, ok := header["User-Agent"]; !ok {
		header.Set("User-Agent", "") // else net/http would add its own
	}
	pr.Out.Body = http.NoBody // each attempt brings the held bytes
}

// keptBack are headers of a provider's answer that callers do not get. A name
// that ends in a hyphen stands for all that begin with it.
var keptBack = []string{
	"Set-Cookie",                                                                  // which all callers would share
	"X-Ratelimit-", "Ratelimit", "Ratelimit-", "Anthropic-Ratelimit-", "X-Codex-", // the limits of the one key that served the request
	"Openai-Organization", "Openai-Project", "Anthropic-Organization-Id", // whose key that is
	"Alt-Svc", "Strict-Transport-Security", "Nel", "Report-To", "Reporting-Endpoints", // of the provider's own address
	"Access-Control-", "Www-Authenticate", // what is for this site to say
	"X-Usher-", "Server", "Server-Timing", // what this server says by itself
}

// modifyResponse prepares the answer for the caller.
func modifyResponse(resp *http.Response) error {
	r := runOf(resp.Request.Context())
	deleteFields(resp.Header, keptBack)
	if ops := r.h.providers[r.chosen.Provider].HeaderDown; ops != nil {
		ops.ApplyTo(resp.Header, r.repl)
	}
	resp.Header.Set("X-Usher-Candidate", r.chosen.ID)
	if len(r.record.Fallbacks) > 0 {
		resp.Header.Set(HeaderModel, r.model.name)
	}
	r.setTiming(resp.Header)
	r.record.Status = resp.StatusCode
	return nil
}

// deleteFields deletes the fields of the names, which may end in a hyphen.
func deleteFields(h http.Header, names []string) {
	for field := range h {
		canonical := http.CanonicalHeaderKey(field)
		meant := func(name string) bool {
			return canonical == name || strings.HasSuffix(name, "-") && strings.HasPrefix(canonical, name)
		}
		if slices.ContainsFunc(names, meant) {
			delete(h, field)
		}
	}
}

// refusalError is the error of a request that is answered by Usher itself, or,
// with an event, by what that tells inside a stream that has begun.
type refusalError struct {
	format.Refusal
	event []byte
}

// Error returns the message.
func (e *refusalError) Error() string { return e.Message }

// handleError answers a request that no attempt has answered.
func handleError(w http.ResponseWriter, req *http.Request, err error) {
	e, ok := errors.AsType[*refusalError](err)
	if !ok { // the proxy itself looks at one header only
		e = &refusalError{Refusal: (&format.BadRequest{Message: "the header Upgrade names no protocol"}).Refusal()}
	}
	if e.event != nil {
		runOf(req.Context()).tell(w, e.event)
	}
	runOf(req.Context()).refuse(w, e.Refusal)
}

func runOf(ctx context.Context) *run { return ctx.Value(runKey{}).(*run) }

// buffers are those that answers are copied with.
var buffers = bufferPool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}

type bufferPool struct{ sync.Pool }

// Get returns a buffer.
func (p *bufferPool) Get() []byte { return p.Pool.Get().(*[32 << 10]byte)[:] }

// Put gives a buffer back.
func (p *bufferPool) Put(b []byte) { p.Pool.Put((*[32 << 10]byte)(b)) }

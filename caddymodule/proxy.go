package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

// newProxy returns the standard library's reverse proxy over our transport,
// which chooses where each attempt goes.
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
		FlushInterval:  -1, // each event at once
		BufferPool:     &buffers,
		ErrorLog:       errorLog,
	}
}

// unsentHeaders are the caller's headers that are of no business to a
// provider, besides credentials.
var unsentHeaders = []string{
	"Traceparent", "Tracestate", "Baggage", // of the caller's own traces
	"Connection", "Upgrade", "Te", "Trailer", // of the caller's connection
	"X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "Via", // who the caller is
	"Accept-Encoding", // answers are read on their way
}

// rewrite removes from the caller's request what must not reach a provider.
// The proxy has removed hop-by-hop and X-Forwarded-* headers.
func rewrite(pr *httputil.ProxyRequest) {
	header := pr.Out.Header
	format.StripCredentials(header, pr.Out.URL)
	for _, name := range unsentHeaders {
		header.Del(name)
	}
	deletePrefix(header, "X-Usher-")
	header.Set("Accept-Encoding", "identity")
	if _, ok := header["User-Agent"]; !ok {
		header.Set("User-Agent", "") // else net/http would add its own
	}
	pr.Out.Body = http.NoBody // each attempt brings the held bytes
}

// keptBack are headers of a provider's answer that callers do not get, by
// their prefix: cookies, which all callers would share; other addresses of the
// provider; what the limits of the one key that served the request are; and
// what this server says by itself.
var keptBack = []string{"Set-Cookie", "Alt-Svc", "X-Ratelimit-", "X-Usher-", "Server-Timing", "Server"}

// modifyResponse prepares the answer for the caller.
func modifyResponse(resp *http.Response) error {
	r := runOf(resp.Request.Context())
	for _, prefix := range keptBack {
		deletePrefix(resp.Header, prefix)
	}
	if ops := r.h.providers[r.chosen.Provider].HeaderDown; ops != nil {
		ops.ApplyTo(resp.Header, r.repl)
	}
	resp.Header.Set("X-Usher-Candidate", r.chosen.ID)
	r.setTiming(resp.Header)
	r.record.Status = resp.StatusCode
	return nil
}

func deletePrefix(h http.Header, prefix string) {
	for name := range h {
		if strings.HasPrefix(http.CanonicalHeaderKey(name), prefix) {
			delete(h, name)
		}
	}
}

// refusalError is the error of a request that is answered by Usher itself.
type refusalError struct{ format.Refusal }

// Error returns the message.
func (e *refusalError) Error() string { return e.Message }

// handleError answers a request that no attempt has answered.
func handleError(w http.ResponseWriter, req *http.Request, err error) {
	r := runOf(req.Context())
	e, ok := errors.AsType[*refusalError](err)
	if !ok {
		e = &refusalError{format.Failed(policy.UpstreamError, 0)}
	}
	if e.Status == statusClientGone {
		r.record.Refusal = e.Code
		w.WriteHeader(statusClientGone) // for the access log
		return
	}
	r.refuse(w, e.Refusal)
}

func runOf(ctx context.Context) *run { return ctx.Value(runKey{}).(*run) }

// buffers are those that answers are copied with.
var buffers = bufferPool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}

type bufferPool struct{ sync.Pool }

// Get returns a buffer.
func (p *bufferPool) Get() []byte { return p.Pool.Get().(*[32 << 10]byte)[:] }

// Put gives a buffer back.
func (p *bufferPool) Put(b []byte) { p.Pool.Put((*[32 << 10]byte)(b)) }

package caddymodule

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/usherproxy/usher/internal/format"
)

// pass passes a request that is no AI request on, or one about stored things that
// nobody holds, whose operation is op. It refuses it if nobody answers: Caddy
// would then say 200 with nothing, which an SDK takes for success.
func pass(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, op *format.Operation) error {
	n := &noting{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}}
	if err := next.ServeHTTP(n, r); err != nil || n.answered {
		return err
	}
	leaveUnread(w, r)
	if op != nil {
		op.WriteRefusal(w, format.NobodyHolds())
		return nil
	}
	op = format.Unserved(r)
	if allow := format.Methods(r.URL.Path); allow != "" {
		w.Header().Set("Allow", allow)
		op.WriteRefusal(w, format.WrongMethod())
		return nil
	}
	op.WriteRefusal(w, format.UnknownRoute())
	return nil
}

// noting notes whether a request is answered.
type noting struct {
	*caddyhttp.ResponseWriterWrapper
	answered bool
}

// WriteHeader notes an answer; one of status 1xx is none yet.
func (n *noting) WriteHeader(status int) {
	n.answered = n.answered || status >= http.StatusOK || status == http.StatusSwitchingProtocols
	n.ResponseWriterWrapper.WriteHeader(status)
}

// Write notes an answer.
func (n *noting) Write(p []byte) (int, error) {
	n.answered = true
	return n.ResponseWriterWrapper.Write(p)
}

// ReadFrom notes an answer.
func (n *noting) ReadFrom(r io.Reader) (int64, error) {
	n.answered = true
	return n.ResponseWriterWrapper.ReadFrom(r)
}

// FlushError notes an answer.
func (n *noting) FlushError() error {
	n.answered = true
	return http.NewResponseController(n.ResponseWriterWrapper).Flush()
}

// Hijack notes an answer.
func (n *noting) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	n.answered = true
	return http.NewResponseController(n.ResponseWriterWrapper).Hijack()
}

// leaveUnread lets a refusal be sent before the body of the request, where
// that is large or not on its way yet: net/http would first read a part of it,
// and wait for that. On HTTP/2 it does not.
func leaveUnread(w http.ResponseWriter, r *http.Request) {
	large := r.ContentLength < 0 || r.ContentLength > maxDiscarded
	if r.ProtoMajor == 1 && (large || r.Header.Get("Expect") != "") {
		w.Header().Set("Connection", "close")
	}
}

// maxDiscarded is how large a body is read to its end for the sake of its
// connection.
const maxDiscarded = 64 << 10

package caddymodule

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/usherproxy/usher/internal/commit"
	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// An attempt is one sending of a request to one candidate.
type attempt struct {
	r         *run
	candidate policy.Candidate
	number    int
	lease     int
	ctx       context.Context
	span      trace.Span
	began     time.Time
	watch     watch
	unsecured atomic.Bool // TLS could not be set up
	asked     bool        // for the usage, which the caller has not

	status    int
	until     time.Time
	about     policy.Subject
	windows   []policy.Window
	errorBody []byte        // the beginning of an answer that is an error
	err       error         // of the connection
	timeout   string        // the part that took too long, or empty
	noRetry   string        // why no other candidate is tried, or empty
	first     time.Duration // to the first content, or 0
	meter     *format.Meter // nil without an answer of success

	// disposition is what the beginning of the answer means, and at the end
	// how the attempt ended.
	disposition policy.Disposition
	finished    bool
}

func (r *run) newAttempt() *attempt {
	if r.tries++; r.tries == 1 {
		r.h.app.shared.budgets.first(r.chosen.Provider)
	}
	r.attempt = &attempt{r: r, candidate: r.chosen, number: r.tries, lease: r.admits, began: time.Now()}
	r.attempt.startSpan()
	r.attempt.ctx = r.attempt.watched(r.attempt.ctx)
	return r.attempt
}

// send sends the request to the candidate, with the candidate's key.
func (a *attempt) send(out *http.Request) (*http.Response, error) {
	p := a.r.h.providers[a.candidate.Provider]
	facts := a.r.facts
	if p.StreamUsage {
		facts, a.asked = facts.AskingForUsage()
	}
	edits := facts.Edits(a.candidate.Model)
	req := out.Clone(traced(a.ctx, &a.unsecured))
	req.URL.Scheme, req.URL.Host = p.url.Scheme, p.url.Host
	path, escaped := a.r.op.SplicePath(out.URL, a.candidate.Model)
	if p.APIVersion != "" {
		path, escaped = a.r.op.AzurePath(path, escaped, a.candidate.Model)
	}
	req.URL.RawQuery = a.r.op.SpliceQuery(out.URL.RawQuery, p.APIVersion)
	if a.r.op.Kind == format.Session {
		req.URL.RawQuery = format.SpliceSession(req.URL.RawQuery, a.candidate.Model)
	}
	req.URL.Path, req.URL.RawPath = joinPath(p.url.Path, path), joinPath(p.url.EscapedPath(), escaped)
	req.Host, req.RequestURI = p.url.Host, ""
	req.Body, req.ContentLength = a.r.body.Open(edits)
	if req.TransferEncoding = nil; req.ContentLength == 0 {
		req.Body = http.NoBody // else the length is not known
	}
	req.GetBody = func() (io.ReadCloser, error) {
		again, _ := a.r.body.Open(edits)
		return again, nil
	}
	if p.HeaderUp != nil {
		p.HeaderUp.ApplyToRequest(req)
	}
	if p.TraceContext {
		propagator.Inject(a.ctx, propagation.HeaderCarrier(req.Header))
	}
	a.r.op.SetCredential(req.Header, p.secrets[a.candidate.Key], p.APIVersion != "")
	return p.transport.RoundTrip(req)
}

// judge says what an answer, or the lack of one, means.
func (a *attempt) judge(resp *http.Response, err error) policy.Disposition {
	if err != nil {
		return a.blame(err)
	}
	a.status = resp.StatusCode
	if resp.StatusCode >= http.StatusBadRequest {
		a.readError(resp)
	}
	if a.r.ctx.Err() != nil { // what came was cut, perhaps
		return a.blame(a.r.ctx.Err())
	}
	if a.r.op.Kind == format.Session && resp.StatusCode < http.StatusBadRequest {
		return a.judgeSession(resp)
	}
	result := a.r.op.Classify(time.Now(), resp.StatusCode, resp.Header, a.errorBody)
	a.until, a.about, a.windows = result.Until, result.About, result.Windows
	if result.Disposition != policy.OK {
		return result.Disposition
	}
	return a.open(resp)
}

// beginnings holds answers of success back until their commit point.
var beginnings = commit.Gate{MaxBytes: commit.DefaultMaxBytes, MaxWait: commit.DefaultMaxWait}

// open says what the beginning of an answer of success means: an error in
// place of content, or none at all, is no success.
func (a *attempt) open(resp *http.Response) policy.Disposition {
	o := beginnings.Hold(a.ctx, a.r.op, resp, a.r.facts.Stream)
	a.meter = o.Meter
	a.sawContent()
	if o.Err != nil {
		return a.blame(o.Err)
	}
	if o.Cause == commit.ErrorEvent {
		a.until, a.about = o.Meter.Err().Until(time.Now()), o.Meter.Err().About
	}
	return o.Disposition
}

// sawContent notes the time of the first content, once it has come.
func (a *attempt) sawContent() {
	if a.first == 0 && a.meter.FirstContent() {
		a.watch.content()
		a.first = time.Since(a.began)
		a.span.AddEvent("first_content")
	}
}

const (
	// maxErrorBody is how much of an answer that is an error is looked at,
	// and errorBodyTimeout how long that may take.
	maxErrorBody     = 64 << 10
	errorBodyTimeout = 5 * time.Second
)

// readError reads the beginning of an answer that is an error. The answer can
// still be passed on, as far as it comes.
func (a *attempt) readError(resp *http.Response) {
	body := resp.Body
	timeout := time.AfterFunc(errorBodyTimeout, func() { _ = body.Close() }) // which ends the reading
	var err error
	a.errorBody, err = io.ReadAll(io.LimitReader(body, maxErrorBody))
	timeout.Stop()
	switch {
	case err != nil: // there will not be more of it
		_ = body.Close()
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(a.errorBody)), int64(len(a.errorBody))
		resp.Header.Del("Content-Length")
	case len(a.errorBody) == maxErrorBody:
		resp.Body = readCloser{io.MultiReader(bytes.NewReader(a.errorBody), body), body}
	default:
		resp.Body = readCloser{bytes.NewReader(a.errorBody), body}
	}
}

type readCloser struct {
	io.Reader
	io.Closer
}

// blame says what an error of the connection means.
func (a *attempt) blame(err error) policy.Disposition {
	a.err = err
	switch ended := a.r.ctx.Err(); {
	case revoked(a.r.ctx) != nil:
		return policy.Denied
	case errors.Is(ended, context.Canceled):
		return policy.ClientGone
	case ended != nil && a.hadNoChance():
		return policy.Denied
	case ended != nil:
		return policy.Timeout
	}
	if e := a.overdue(); e != nil {
		a.err, a.timeout = e, e.part
		return policy.Timeout
	}
	unconnected, late := a.unconnected(err)
	if unconnected && late {
		a.timeout = partConnect
	}
	switch {
	case unconnected:
		return policy.ConnectFailed
	case late:
		return policy.Timeout
	}
	return policy.UpstreamError
}

// hadNoChance reports whether it is not by the candidate's fault that the
// request took longer than it may: it was answering, or others had taken most
// of the time.
func (a *attempt) hadNoChance() bool {
	return a.first > 0 || time.Since(a.began) < time.Duration(a.r.h.Timeout)/2
}

// finish ends the attempt and tells everybody about it. Only the first call
// counts.
func (a *attempt) finish(d policy.Disposition) {
	if a.finished {
		return
	}
	a.finished, a.disposition = true, d
	a.watch.end()
	a.noteOrigin()
	var usage *policy.Usage
	if a.meter != nil {
		usage = a.meter.Usage()
	}
	if a.r.session != nil {
		usage = a.r.session.usage()
	}
	res := policy.AttemptResult{
		RequestID: a.r.req.ID, Attempt: a.lease, Candidate: a.candidate, Format: a.r.op.Format, Operation: a.r.op.Name,
		Disposition: d, Status: a.status, Until: a.until, About: a.about, Windows: a.windows, Usage: usage,
		FirstEvent: a.first, Duration: time.Since(a.began), EndedAt: time.Now(),
	}
	if d != policy.RateLimited && d != policy.QuotaExhausted && d != policy.AuthFailed {
		res.About = "" // which is of how the attempt was judged before
	}
	if usage == nil && a.refused() {
		usage = new(policy.Usage)
	}
	a.r.outcome = outcome{disposition: d, usage: usage}
	if !a.until.IsZero() && (a.r.back.IsZero() || a.until.Before(a.r.back)) {
		a.r.back = a.until
	}
	a.r.h.app.shared.facts.learn(res)
	var told []<-chan struct{}
	for plugin, instances := range a.r.h.observers {
		told = append(told, plugin.Observe(instances, host.Observation{Catalog: a.r.model.catalog, Result: res}))
	}
	a.r.h.app.shared.waiting.after(told, &res)
	a.r.record.Attempts = append(a.r.record.Attempts, a.recorded(res))
	a.endSpan(res)
}

// refused reports whether the provider has not begun to work on the request,
// so that it used no tokens.
func (a *attempt) refused() bool {
	return a.disposition == policy.ConnectFailed ||
		a.status >= http.StatusBadRequest && a.status < http.StatusInternalServerError
}

// recorded returns the attempt for the record.
func (a *attempt) recorded(res policy.AttemptResult) attemptRecord {
	rec := attemptRecord{
		At: a.r.at(a.began), Attempt: a.number, Candidate: res.Candidate.ID, Status: res.Status, Disposition: res.Disposition, Error: a.errorText(), Timeout: a.timeout, NoRetry: a.noRetry,
		Until: optionalTime(res.Until), About: res.About, Windows: recordWindows(res.Windows), FirstEvent: inMilliseconds(res.FirstEvent), Duration: inMilliseconds(res.Duration),
	}
	if res.Usage != nil {
		u := usageRecord(*res.Usage)
		rec.Usage = &u
	}
	return rec
}

// maxErrorText is how much is shown of an error of the connection, which may
// quote what a provider sent.
const maxErrorText = 200

// errorText is what went wrong with the connection, or empty. It is not shown
// if the caller left, which breaks connections, too.
func (a *attempt) errorText() string {
	if a.err == nil || a.disposition == policy.ClientGone {
		return ""
	}
	return brief(a.err.Error(), maxErrorText)
}

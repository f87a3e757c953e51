package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/internal/held"
	"github.com/usherproxy/usher/policy"
)

// A run is one request on its way through the pipeline. It is used by one
// goroutine at a time.
type run struct {
	h     *Handler
	op    *format.Operation
	repl  *caddy.Replacer
	began time.Time
	body  *held.Body // nil until it has been read
	facts format.Body
	model *model // that serves it
	who   identity
	req   *policy.Request

	// ctx is that of the request. Attempts are made in it, and not in that of
	// the proxy, which would pass on what a provider says before its answer
	// (status 103) with all headers, and clear ours.
	ctx context.Context

	tracer trace.Tracer // of what is recorded below server, or nil if that is not
	server trace.Span   // of the request
	owned  bool         // server is ours, and not that of Caddy's tracing

	fallbacks []string // of the model that was asked for, as far as they are left

	accounts []string // those that have what the request refers to; none for any
	searches bool     // nobody knows which account has it

	base     []policy.Candidate // those that the policies are asked about
	verdicts []policy.Verdict
	ranked   []policy.Candidate // those that are left, best first
	waited   bool               // the request has been in line
	moved    bool               // its wait ended because others may serve it by now
	leases   []lease            // in the order in which they were given
	outcome  outcome            // of what runs under the leases
	chosen   policy.Candidate
	admits   int   // how often a lease was asked for
	tries    int   // how often the request was sent
	hold     *hold // what runs under the leases, as the facts count it
	leased   time.Time
	asked    atomic.Int64            // the value of admits that the present lease was asked with
	revoke   context.CancelCauseFunc // ends the request

	selecting, admitting, upstream time.Duration

	attempt *attempt  // the last one
	back    time.Time // when the first of the providers that refused may be asked again
	record  *decision
	refusal *format.Refusal
	pulse   *pulse   // of the answer, or nil
	session *session // that the answer has begun, or nil
}

// An outcome is how leases end. Its zero value is that of leases under which
// nothing was sent.
type outcome struct {
	disposition policy.Disposition
	usage       *policy.Usage
}

// A lease is one that an admission policy gave.
type lease struct {
	use     *use
	attempt int
}

// HeaderPriority is the header with which a caller asks for a priority.
const HeaderPriority = "X-Usher-Priority"

// serve takes a request of a known caller through the pipeline.
func (h *Handler) serve(w http.ResponseWriter, in *http.Request, op *format.Operation, who identity, repl *caddy.Replacer) {
	ctx, revoke := context.WithCancelCause(in.Context())
	defer revoke(nil)
	defer context.AfterFunc(h.app.stopping, func() { revoke(&endingError{format.Stopping()}) })()
	most := h.Timeout
	if op.Kind == format.Session {
		most = h.Session.Age
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(most))
	defer cancel()
	id := uuid.Must(uuid.NewV7()).String()
	w.Header().Set("X-Usher-Request-Id", id)
	r := &run{h: h, op: op, repl: repl, who: who, began: time.Now(), revoke: revoke}
	r.record = &decision{
		ID: id, Time: r.began, Caller: who.ID, Group: who.Group, Operation: op.Name,
		Selections: []selectionRecord{}, Admissions: []admissionRecord{}, Attempts: []attemptRecord{},
	}
	r.ctx = r.startServerSpan(ctx, in, id)
	defer r.end() // also through a panic, by which net/http aborts answers
	refusal := r.read(w, in, id)
	if refusal == nil {
		if h.Heartbeat > 0 && r.facts.Stream && op.AnswersInEvents(in.URL) {
			r.pulse = newPulse(w, time.Duration(h.Heartbeat))
			defer r.pulse.stop()
			w = r.pulse
		}
		refusal = r.decideOrFallBack(r.ctx)
	}
	if refusal != nil {
		r.refuse(w, *refusal)
		return
	}
	if op.Kind == format.Session {
		sw := &sessionWriter{ResponseWriter: w}
		defer r.endSession(sw)
		w = sw
	}
	h.proxy.ServeHTTP(w, in.WithContext(context.WithValue(r.ctx, runKey{}, r)))
}

type runKey struct{}

// read reads the body and what Usher must know of it. The whole body is read
// before anything waits: net/http notices a caller who leaves only then.
func (r *run) read(w http.ResponseWriter, in *http.Request, id string) *format.Refusal {
	refuse := func(f format.Refusal) *format.Refusal { return &f }
	var refusal *format.Refusal
	arrived := breakOff(r.ctx, w)
	r.body, refusal = readBody(w, in, r.h.MaxBody)
	arrived()
	switch {
	case refusal != nil && errors.Is(r.ctx.Err(), context.DeadlineExceeded):
		return refuse(format.DeadlineExceeded())
	case refusal != nil: // who has only left off sending may still read why
		return refusal
	}
	err := r.body.View(func(text []byte) (err error) {
		if r.op.Kind == format.Session {
			r.facts, err = r.op.ScanSession(in.URL.Query(), r.h.Session.Model)
		} else {
			r.facts, err = r.op.Scan(in.URL.Path, in.Header.Get("Content-Type"), text)
		}
		return err
	})
	if bad, ok := errors.AsType[*format.BadRequest](err); ok {
		return refuse(bad.Refusal())
	} else if err != nil {
		r.h.log.Error("cannot read a body again", zap.Error(err))
		return refuse(format.NotHeld())
	}
	r.record.Model, r.record.Stream = r.facts.Model, r.facts.Stream
	if refusal := r.find(); refusal != nil {
		return refusal
	}
	r.fallbacks = r.model.fallbacks
	r.req = r.request(in, id)
	r.record.Priority = r.req.Priority
	r.describeServerSpan()
	return nil
}

// request returns what policies may see of the request.
func (r *run) request(in *http.Request, id string) *policy.Request {
	deadline, _ := r.ctx.Deadline()
	return &policy.Request{
		ID: id, Format: r.op.Format, Operation: r.op.Name, Model: r.facts.Model, Stream: r.facts.Stream,
		Caller: r.who.Caller, Priority: priority(in.Header.Get(HeaderPriority), r.who.Priority),
		Arrival:     r.h.app.shared.facts.arrive(),
		InputTokens: r.facts.InputTokens, MinInputTokens: r.facts.MinInputTokens, MaxOutputTokens: r.facts.MaxOutputTokens, Affinity: r.facts.Affinity,
		ReceivedAt: time.Now(), Deadline: deadline, Scopes: r.who.Scopes, Header: in.Header,
	}
}

// priority returns the priority that a caller gets who asks for one and may
// have at most the given one.
func priority(asked string, most int) int {
	if n, err := strconv.Atoi(asked); err == nil {
		return min(n, most)
	}
	return most
}

// granted returns the request as a policy may see it.
func (r *run) granted(uses ...*use) *policy.Request {
	req := *r.req
	req.Header, req.Body = nil, nil
	for _, u := range uses {
		if u.grants == nil {
			continue
		}
		for _, name := range u.grants.GrantHeaders {
			name = http.CanonicalHeaderKey(name)
			if values := r.req.Header.Values(name); len(values) > 0 {
				if req.Header == nil {
					req.Header = make(http.Header)
				}
				req.Header[name] = values
			}
		}
		if u.grants.GrantBody {
			req.Body = r.wholeBody()
		}
	}
	return &req
}

// wholeBody returns the body in memory, for a policy that may see it.
func (r *run) wholeBody() []byte {
	text, err := r.body.Bytes()
	if err != nil {
		r.h.log.Error("cannot read a body again", zap.Error(err))
	}
	return text
}

// statusClientGone is what access logs show for a caller who left.
const statusClientGone = 499

// ended returns the refusal of a request whose time is over or whose caller
// left, else nil.
func (r *run) ended(ctx context.Context) *format.Refusal {
	if ctx.Err() == nil {
		return nil
	}
	if refusal := revoked(ctx); refusal != nil {
		return refusal
	}
	if errors.Is(ctx.Err(), context.Canceled) { // nobody will read it
		return &format.Refusal{Status: statusClientGone, Code: string(policy.ClientGone)}
	}
	refusal := format.DeadlineExceeded()
	return &refusal
}

// refuse answers with a refusal.
func (r *run) refuse(w http.ResponseWriter, refusal format.Refusal) {
	r.refusal = &refusal
	early := r.pulse.stop()
	if refusal.Status == statusClientGone {
		w.WriteHeader(statusClientGone)
		return
	}
	if early {
		r.record.Refusal = refusal.Code
		r.tell(w, r.op.StreamError(refusal))
	}
	if r.chosen.ID != "" {
		w.Header().Set("X-Usher-Candidate", r.chosen.ID)
	}
	r.setTiming(w.Header())
	r.record.Status, r.record.Refusal = refusal.Status, refusal.Code
	r.op.WriteRefusal(w, refusal)
}

// setTiming sets the header that tells where the time went.
func (r *run) setTiming(h http.Header) {
	ms := func(name string, d time.Duration) string {
		return name + ";dur=" + strconv.FormatFloat(float64(inMilliseconds(d)), 'f', -1, 64)
	}
	h.Set("Server-Timing", ms("select", r.selecting)+", "+ms("admit", r.admitting)+", "+ms("upstream", r.upstream))
}

// hangUp is how long a provider may take to notice that a request was broken
// off. Until then it counts the request, and would refuse the next one that
// takes its place within the provider's own limits.
const hangUp = 100 * time.Millisecond

// end releases what the request holds and closes its record. It must run
// whatever happened.
func (r *run) end() {
	if r.attempt != nil {
		r.attempt.finish(policy.Denied) // which changes nothing but after a panic
		if r.attempt.disposition == policy.ClientGone {
			time.Sleep(hangUp)
		}
	}
	r.release(trace.SpanContextFromContext(r.ctx))
	if r.body != nil {
		_ = r.body.Close() // nobody needs it any more
	}
	if why := revoked(r.ctx); why != nil {
		r.record.Refusal = why.Code
	}
	r.record.Disposition = r.disposition()
	r.record.Duration = inMilliseconds(time.Since(r.began))
	r.endServerSpan()
	r.h.app.shared.decisions.add(r.record)
}

// disposition says how the request ended.
func (r *run) disposition() policy.Disposition {
	switch {
	case r.gone() && r.record.Status == 0:
		return policy.ClientGone
	case r.attempt != nil:
		return r.attempt.disposition
	case r.refusal != nil && r.refusal.Status < http.StatusInternalServerError && r.refusal.Status != http.StatusTooManyRequests:
		return policy.ClientFault
	}
	return policy.Denied
}

// gone reports whether the caller has left.
func (r *run) gone() bool { return errors.Is(r.ctx.Err(), context.Canceled) && revoked(r.ctx) == nil }

// release ends all leases of the request, in the reverse of their order. It
// returns what is closed when the policies have taken note.
func (r *run) release(span trace.SpanContext) []<-chan struct{} {
	out := policy.Outcome{Disposition: r.outcome.disposition, Usage: r.outcome.usage}
	if out.Disposition == "" { // nothing was sent, and so nothing was used
		out.Disposition, out.Usage = policy.Denied, new(policy.Usage)
		if r.gone() {
			out.Disposition = policy.ClientGone
		}
	}
	r.hold.end(out.Usage)
	if !r.leased.IsZero() {
		out.Duration = time.Since(r.leased)
	}
	var acks []<-chan struct{}
	for i := len(r.leases) - 1; i >= 0; i-- {
		l := r.leases[i]
		acks = append(acks, l.use.instance.Release(r.req.ID, l.attempt, out, span))
	}
	r.leases, r.leased, r.outcome = nil, time.Time{}, outcome{}
	return acks
}

package caddymodule

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

// A run is one request on its way through the pipeline. It is used by one
// goroutine at a time.
type run struct {
	h     *Handler
	op    *format.Operation
	repl  *caddy.Replacer
	began time.Time
	body  []byte
	facts format.Body
	model *model
	who   identity
	req   *policy.Request

	tracer trace.Tracer
	span   trace.Span // of the server; nil inside Caddy's tracing

	verdicts []policy.Verdict
	ranked   []policy.Candidate // those that are left, best first
	leases   []lease            // in the order in which they were given
	chosen   policy.Candidate
	admits   int // how often a lease was asked for
	tries    int // how often the request was sent
	uncount  func()
	leased   time.Time

	selecting, admitting, upstream time.Duration

	last    outcome // of the last attempt
	record  *decision
	refusal *format.Refusal
}

// outcome is how an attempt ended.
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
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, op *format.Operation, who identity, repl *caddy.Replacer) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(h.Timeout))
	defer cancel()
	id := uuid.Must(uuid.NewV7()).String()
	w.Header().Set("X-Usher-Request-Id", id)
	run := &run{h: h, op: op, repl: repl, who: who, began: time.Now(), uncount: func() {}}
	ctx = run.startServerSpan(ctx, r, id)
	defer run.end(ctx) // also through a panic, by which net/http aborts answers
	run.record = &decision{
		ID: id, Time: run.began, Caller: who.ID, Group: who.Group, Operation: op.Name,
		Selections: []selectionRecord{}, Admissions: []admissionRecord{}, Attempts: []attemptRecord{},
	}
	if refusal := run.read(w, r, id); refusal != nil {
		run.refuse(w, *refusal)
		return
	}
	if refusal := run.decide(ctx); refusal != nil {
		run.refuse(w, *refusal)
		return
	}
	h.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, runKey{}, run)))
}

type runKey struct{}

// read reads the body and what Usher must know of it. The whole body is read
// before anything waits: net/http notices a caller who leaves only then.
func (r *run) read(w http.ResponseWriter, in *http.Request, id string) *format.Refusal {
	refuse := func(f format.Refusal) *format.Refusal { return &f }
	if in.ContentLength > r.h.MaxBody {
		return refuse(format.TooLarge(r.h.MaxBody))
	}
	if e := in.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return refuse(format.UnknownEncoding())
	}
	var err error
	r.body, err = io.ReadAll(http.MaxBytesReader(w, in.Body, r.h.MaxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(format.TooLarge(r.h.MaxBody))
	}
	if err != nil {
		return refuse(format.Unreadable())
	}
	r.facts, err = r.op.Scan(r.body)
	if bad, ok := errors.AsType[*format.BadRequest](err); ok {
		return refuse(bad.Refusal())
	}
	r.record.Model, r.record.Stream = r.facts.Model, r.facts.Stream
	m, ok := r.h.models[r.facts.Model]
	if !ok {
		return refuse(format.UnknownModel(r.facts.Model))
	}
	r.model = m
	r.req = r.request(in, id)
	r.record.Priority = r.req.Priority
	r.describeServerSpan()
	return nil
}

// request returns what policies may see of the request.
func (r *run) request(in *http.Request, id string) *policy.Request {
	deadline, _ := in.Context().Deadline()
	if end := r.began.Add(time.Duration(r.h.Timeout)); deadline.IsZero() || end.Before(deadline) {
		deadline = end
	}
	return &policy.Request{
		ID: id, Format: r.op.Format, Operation: r.op.Name, Model: r.facts.Model, Stream: r.facts.Stream,
		Caller: r.who.Caller, Priority: priority(in.Header.Get(HeaderPriority), r.who.Priority),
		Arrival:     r.h.app.shared.facts.arrive(),
		InputTokens: r.facts.InputTokens, MaxOutputTokens: r.facts.MaxOutputTokens, Affinity: r.facts.Affinity,
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
			req.Body = r.body
		}
	}
	return &req
}

// refuse answers with a refusal.
func (r *run) refuse(w http.ResponseWriter, refusal format.Refusal) {
	r.refusal = &refusal
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

// end releases what the request holds and closes its record. It must run
// whatever happened.
func (r *run) end(ctx context.Context) {
	gone := errors.Is(context.Cause(ctx), context.Canceled)
	if r.last.disposition == "" {
		switch {
		case gone:
			r.last.disposition = policy.ClientGone
		case r.refusal != nil && r.refusal.Status < http.StatusInternalServerError && r.refusal.Status != http.StatusTooManyRequests:
			r.last.disposition = policy.ClientFault
		default:
			r.last.disposition = policy.Denied
		}
	}
	r.release(trace.SpanContextFromContext(ctx))
	r.record.Disposition = r.last.disposition
	r.record.Duration = inMilliseconds(time.Since(r.began))
	r.endServerSpan()
	r.h.app.shared.decisions.add(r.record)
}

// release ends all leases of the request, in the reverse of their order. It
// returns what is closed when the policies have taken note.
func (r *run) release(span trace.SpanContext) []<-chan struct{} {
	r.uncount()
	out := policy.Outcome{Disposition: r.last.disposition, Usage: r.last.usage}
	if !r.leased.IsZero() {
		out.Duration = time.Since(r.leased)
	}
	var acks []<-chan struct{}
	for i := len(r.leases) - 1; i >= 0; i-- {
		l := r.leases[i]
		acks = append(acks, l.use.instance.Release(r.req.ID, l.attempt, out, span))
	}
	r.leases = nil
	return acks
}

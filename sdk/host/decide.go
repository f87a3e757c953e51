package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// A DecideRequest asks the policies of one process about one request.
type DecideRequest struct {
	// Request is the request to decide on.
	Request *policy.Request

	// Catalog holds all Candidates, which are those to judge, best first,
	// with their present load.
	Catalog    *Catalog
	Candidates []policy.Candidate

	// Verdicts are what policies of other processes said before.
	Verdicts []policy.Verdict

	// Select names the selection instances to ask, in order.
	Select []string

	// Admit names the admission instance to ask afterwards, or is empty.
	// Attempt, NoWait and Revoke are for it; see [policy.AdmitRequest]. Nothing
	// is revoked by a plugin that serves no session.
	Admit   string
	Attempt int
	NoWait  bool
	Revoke  func(policy.Reason)

	// AdmitSpan is the span that the admission belongs to, if it is not that
	// of the context.
	AdmitSpan trace.SpanContext
}

// A Decision is the answer to a [DecideRequest].
type Decision struct {
	// Selections are the answers of the selection instances, in order. The
	// list ends early after one that failed.
	Selections []SelectionResult

	// Admission is the answer of the admission instance, or nil if it was not
	// asked, because no candidate was left.
	Admission *Admission
}

// A SelectionResult is the answer of one selection instance.
type SelectionResult struct {
	policy.Selection

	// Err is set if the policy failed.
	Err error

	// Duration is how long the policy itself took.
	Duration time.Duration
}

// An Admission is the answer of an admission instance. Exactly one of its
// fields but Position and Span is set.
type Admission struct {
	// Candidate is the ID of the candidate that the lease is on.
	Candidate string

	// Rejection is set if the request is turned away.
	Rejection *policy.Rejection

	// Waiting is set if the request waits, at Position if that is not 0.
	Waiting  bool
	Position int

	// Err is set if the policy failed.
	Err error

	// Span is the plugin's span, if it made one.
	Span trace.SpanContext
}

// Decide asks. It does not wait for capacity: an admission that says Waiting
// is to be collected by [Client.Wait].
func (c *Client) Decide(ctx context.Context, req *DecideRequest) (*Decision, error) {
	out := policypb.DecideRequestFromVTPool()
	if err := req.toProto(ctx, out); err != nil {
		return nil, err
	}
	ticket := Ticket{ID: req.Request.ID, Attempt: req.Attempt}
	c.expect(req.Admit, ticket, req.Revoke)
	resp, err := c.decide(ctx, out)
	if err != nil {
		c.answered(req.Admit, ticket, nil, err)
		return nil, err
	}
	defer resp.ReturnToVTPool()
	d := decisionFromProto(resp, req.Catalog)
	c.answered(req.Admit, ticket, d.Admission, nil)
	return d, nil
}

// decide makes the call, and puts out back into its pool.
func (c *Client) decide(ctx context.Context, out *policypb.DecideRequest) (*policypb.DecideResponse, error) {
	if c.session == nil {
		defer out.ReturnToVTPool()
		return c.rpc.Decide(ctx, out)
	}
	a, err := c.session.call(ctx, &policypb.SessionCall{Decide: out}) // which gives out back once it is sent
	if err == nil && a.decide == nil {
		err = errOtherAnswer
	}
	return a.decide, err
}

// errOtherAnswer is the error of a call that got the answer to another one.
var errOtherAnswer = status.Error(codes.Internal, "the plugin answered to another question")

func (r *DecideRequest) toProto(ctx context.Context, out *policypb.DecideRequest) error {
	refs, err := r.Catalog.refs(out.Candidates[:0], r.Candidates)
	if err != nil {
		return err
	}
	verdicts, err := wire.VerdictsToProto(out.Verdicts[:0], r.Verdicts, r.Catalog.lookup)
	if err != nil {
		return err
	}
	out.Trace, out.Request, out.Catalog, out.Candidates = traceContext(ctx), wire.RequestToProto(r.Request), r.Catalog.Name, refs
	out.Verdicts, out.Select, out.Admit = verdicts, append(out.Select[:0], r.Select...), r.Admit
	out.Attempt, out.NoWait = uint32(r.Attempt), r.NoWait
	out.AdmitTrace = traceContextOf(r.AdmitSpan)
	return nil
}

func decisionFromProto(resp *policypb.DecideResponse, catalog *Catalog) *Decision {
	d := &Decision{}
	for _, s := range resp.GetSelections() {
		result := SelectionResult{Duration: s.GetDuration().AsDuration()}
		if s.GetError() != "" {
			result.Err = errors.New(s.GetError())
		} else if result.Verdicts, result.Err = wire.VerdictsFromProto(s.GetVerdicts(), catalog.Candidates); result.Err != nil {
			result.Verdicts = nil
		}
		d.Selections = append(d.Selections, result)
	}
	if a := resp.GetAdmission(); a != nil {
		d.Admission = admissionFromProto(a, catalog, resp.GetTrace())
	}
	return d
}

// An AdmitRequest asks for an admission, or collects one that waits.
type AdmitRequest struct {
	// Instance is the admission instance.
	Instance string

	// Request, Attempt, NoWait and Revoke are as in [policy.AdmitRequest].
	Request *policy.Request
	Attempt int
	NoWait  bool
	Revoke  func(policy.Reason)

	// Catalog holds all Candidates, best first.
	Catalog    *Catalog
	Candidates []policy.Candidate

	// SeenPosition is the position that is known; see [Client.Admit].
	SeenPosition int
}

// Admit blocks until the admission is settled, or until the request waits at a
// position other than SeenPosition; it is then to be called again. The end of
// ctx does not end the wait in the plugin; [Client.Cancel] does.
func (c *Client) Admit(ctx context.Context, req *AdmitRequest) (*Admission, error) {
	out, err := req.toProto(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := c.rpc.Admit(ctx, out)
	if err != nil {
		return nil, err
	}
	return admissionFromProto(resp.GetAdmission(), req.Catalog, resp.GetTrace()), nil
}

// Wait blocks until the admission is settled. Whatever the plugin says while
// the request waits is told to waiting. The end of ctx does not end the wait in
// the plugin; [Client.Cancel] does.
func (c *Client) Wait(ctx context.Context, req *AdmitRequest, waiting func(*Admission)) (*Admission, error) {
	if c.session != nil {
		return c.waitOnSession(ctx, req, waiting)
	}
	seen := *req
	for {
		a, err := c.Admit(ctx, &seen)
		if err != nil || !a.Waiting {
			return a, err
		}
		if a.Position == seen.SeenPosition {
			pause(ctx) // the plugin should not have answered
			continue
		}
		seen.SeenPosition = a.Position
		waiting(a)
	}
}

// pause keeps a plugin that answers without news from being asked incessantly.
func pause(ctx context.Context) {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
	}
}

func (c *Client) waitOnSession(ctx context.Context, req *AdmitRequest, waiting func(*Admission)) (a *Admission, err error) {
	ticket := Ticket{ID: req.Request.ID, Attempt: req.Attempt}
	c.expect(req.Instance, ticket, req.Revoke)
	defer func() { c.answered(req.Instance, ticket, a, err) }()
	out, err := req.toProto(ctx)
	if err != nil {
		return nil, err
	}
	call := &policypb.SessionCall{Admit: out}
	p, err := c.session.begin(ctx, call)
	if err != nil {
		return nil, err
	}
	for {
		answer, err := c.session.next(ctx, call.GetId(), p)
		switch {
		case err != nil:
			return nil, err
		case answer.admit == nil:
			return nil, errOtherAnswer
		}
		a = admissionFromProto(answer.admit.GetAdmission(), req.Catalog, answer.admit.GetTrace())
		if !a.Waiting {
			return a, nil
		}
		waiting(a)
	}
}

func (r *AdmitRequest) toProto(ctx context.Context) (*policypb.AdmitRequest, error) {
	refs, err := r.Catalog.refs(nil, r.Candidates)
	if err != nil {
		return nil, err
	}
	return &policypb.AdmitRequest{
		Trace: traceContext(ctx), Instance: r.Instance, Request: wire.RequestToProto(r.Request),
		Attempt: uint32(r.Attempt), Catalog: r.Catalog.Name, Candidates: refs, NoWait: r.NoWait,
		SeenPosition: int64(r.SeenPosition),
	}, nil
}

// A Ticket names one admission of a request.
type Ticket struct {
	// ID is the ID of the request, and Attempt the attempt that it is for.
	ID      string
	Attempt int
}

func (t Ticket) toProto() *policypb.Ticket {
	return &policypb.Ticket{Id: t.ID, Attempt: uint32(t.Attempt)}
}

// A Held ticket is one that runs or waits.
type Held struct {
	// Request and Attempt are those of the admission.
	Request *policy.Request
	Attempt int

	// Revoke is as in [policy.Held], for requests that run.
	Revoke func(policy.Reason)

	// Catalog holds Candidates: the one that serves a running request, or
	// those that may serve a waiting one.
	Catalog    *Catalog
	Candidates []policy.Candidate
}

// Restore tells a new admission instance what the host holds.
func (c *Client) Restore(ctx context.Context, instance string, running, waiting []Held) error {
	req := &policypb.RestoreRequest{Instance: instance}
	var err error
	if req.Running, err = heldToProto(running); err != nil {
		return err
	}
	if req.Waiting, err = heldToProto(waiting); err != nil {
		return err
	}
	for _, h := range running {
		c.expect(instance, Ticket{ID: h.Request.ID, Attempt: h.Attempt}, h.Revoke)
	}
	_, err = c.rpc.Restore(ctx, req)
	return err
}

func heldToProto(held []Held) ([]*policypb.RestoredTicket, error) {
	out := make([]*policypb.RestoredTicket, len(held))
	for i, h := range held {
		refs, err := h.Catalog.refs(nil, h.Candidates)
		if err != nil {
			return nil, err
		}
		out[i] = &policypb.RestoredTicket{
			Request: wire.RequestToProto(h.Request), Attempt: uint32(h.Attempt), Catalog: h.Catalog.Name, Candidates: refs,
		}
	}
	return out, nil
}

func admissionFromProto(a *policypb.Admission, catalog *Catalog, tc *policypb.TraceContext) *Admission {
	out := &Admission{Span: spanContext(tc)}
	switch r := a.GetResult().(type) {
	case *policypb.Admission_Admitted:
		i := int64(r.Admitted.GetIndex())
		if i >= int64(len(catalog.Candidates)) {
			out.Err = fmt.Errorf("lease on candidate %d of %d", i, len(catalog.Candidates))
			break
		}
		out.Candidate = catalog.Candidates[i].ID
	case *policypb.Admission_Rejected:
		out.Rejection = wire.RejectionFromProto(r.Rejected)
	case *policypb.Admission_Waiting:
		out.Waiting, out.Position = true, int(r.Waiting.GetPosition())
	case *policypb.Admission_Error:
		out.Err = errors.New(r.Error)
	default:
		out.Err = errors.New("the plugin gave no answer")
	}
	return out
}

// traceContext returns the span of ctx, if there is one. The plugin is told of
// one that is not recorded, too, so that it records none of its own.
func traceContext(ctx context.Context) *policypb.TraceContext {
	return traceContextOf(trace.SpanContextFromContext(ctx))
}

func traceContextOf(span trace.SpanContext) *policypb.TraceContext {
	if !span.IsValid() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), span), carrier)
	return &policypb.TraceContext{Traceparent: carrier["traceparent"], Tracestate: carrier["tracestate"]}
}

func spanContext(tc *policypb.TraceContext) trace.SpanContext {
	if tc.GetTraceparent() == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": tc.GetTraceparent()})
	return trace.SpanContextFromContext(ctx)
}

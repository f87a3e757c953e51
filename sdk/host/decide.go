package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

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
	// Attempt and NoWait are for it; see [policy.AdmitRequest].
	Admit   string
	Attempt int
	NoWait  bool

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
// is to be collected by [Client.Admit].
func (c *Client) Decide(ctx context.Context, req *DecideRequest) (*Decision, error) {
	refs, err := req.Catalog.refs(req.Candidates)
	if err != nil {
		return nil, err
	}
	verdicts, err := wire.VerdictsToProto(req.Verdicts, req.Catalog.lookup)
	if err != nil {
		return nil, err
	}
	resp, err := c.rpc.Decide(ctx, &policypb.DecideRequest{
		Trace: traceContext(ctx), Request: wire.RequestToProto(req.Request),
		Catalog: req.Catalog.Name, Candidates: refs, Verdicts: verdicts,
		Select: req.Select, Admit: req.Admit, Attempt: uint32(req.Attempt), NoWait: req.NoWait,
		AdmitTrace: traceContext(trace.ContextWithSpanContext(ctx, req.AdmitSpan)),
	})
	if err != nil {
		return nil, err
	}
	d := &Decision{}
	for _, s := range resp.GetSelections() {
		result := SelectionResult{Duration: s.GetDuration().AsDuration()}
		if s.GetError() != "" {
			result.Err = errors.New(s.GetError())
		} else if result.Verdicts, result.Err = wire.VerdictsFromProto(s.GetVerdicts(), req.Catalog.Candidates); result.Err != nil {
			result.Verdicts = nil
		}
		d.Selections = append(d.Selections, result)
	}
	if a := resp.GetAdmission(); a != nil {
		d.Admission = admissionFromProto(a, req.Catalog, resp.GetTrace())
	}
	return d, nil
}

// An AdmitRequest asks for an admission, or collects one that waits.
type AdmitRequest struct {
	// Instance is the admission instance.
	Instance string

	// Request, Attempt and NoWait are as in [policy.AdmitRequest].
	Request *policy.Request
	Attempt int
	NoWait  bool

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
	refs, err := req.Catalog.refs(req.Candidates)
	if err != nil {
		return nil, err
	}
	resp, err := c.rpc.Admit(ctx, &policypb.AdmitRequest{
		Trace: traceContext(ctx), Instance: req.Instance, Request: wire.RequestToProto(req.Request),
		Attempt: uint32(req.Attempt), Catalog: req.Catalog.Name, Candidates: refs, NoWait: req.NoWait,
		SeenPosition: int64(req.SeenPosition),
	})
	if err != nil {
		return nil, err
	}
	return admissionFromProto(resp.GetAdmission(), req.Catalog, resp.GetTrace()), nil
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

// Cancel ends the wait of tickets that nobody waits for any more, and releases
// those that were admitted meanwhile.
func (c *Client) Cancel(ctx context.Context, instance string, tickets ...Ticket) error {
	req := &policypb.CancelRequest{Instance: instance}
	for _, t := range tickets {
		req.Tickets = append(req.Tickets, t.toProto())
	}
	_, err := c.rpc.Cancel(ctx, req)
	return err
}

// A Release ends one lease.
type Release struct {
	// Instance is the one that gave the lease, and Ticket names it.
	Instance string
	Ticket   Ticket

	// Outcome tells how the request ended.
	Outcome policy.Outcome

	// Span is the span that the release belongs to, if any.
	Span trace.SpanContext
}

// Release ends leases. It may be called again for the same ones.
func (c *Client) Release(ctx context.Context, releases []Release) error {
	req := &policypb.ReleaseRequest{}
	for _, r := range releases {
		req.Releases = append(req.Releases, &policypb.LeaseRelease{
			Instance: r.Instance, Ticket: r.Ticket.toProto(), Outcome: wire.OutcomeToProto(r.Outcome),
			Trace: traceContext(trace.ContextWithSpanContext(ctx, r.Span)),
		})
	}
	_, err := c.rpc.Release(ctx, req)
	return err
}

// A Held ticket is one that runs or waits.
type Held struct {
	// Request and Attempt are those of the admission.
	Request *policy.Request
	Attempt int

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
	_, err = c.rpc.Restore(ctx, req)
	return err
}

func heldToProto(held []Held) ([]*policypb.RestoredTicket, error) {
	out := make([]*policypb.RestoredTicket, len(held))
	for i, h := range held {
		refs, err := h.Catalog.refs(h.Candidates)
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
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return &policypb.TraceContext{Traceparent: carrier["traceparent"], Tracestate: carrier["tracestate"]}
}

func spanContext(tc *policypb.TraceContext) trace.SpanContext {
	if tc.GetTraceparent() == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": tc.GetTraceparent()})
	return trace.SpanContextFromContext(ctx)
}

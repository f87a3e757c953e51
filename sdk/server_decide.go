package sdk

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// parkAfter is how long Decide waits for an admission policy that says neither
// yes nor no, nor that the request waits.
const parkAfter = 20 * time.Millisecond

func (s *server) Decide(ctx context.Context, req *policypb.DecideRequest) (*policypb.DecideResponse, error) {
	resp := policypb.DecideResponseFromVTPool() // a host in this process gives it back
	begun, err := s.decide(ctx, req, resp)
	if err != nil || begun.admission == nil {
		return resp, err
	}
	if begun.fresh {
		go begun.tickets.run(begun.admission) // ends at the latest with the instance
	}
	ctx, cancel := context.WithTimeout(ctx, parkAfter)
	defer cancel()
	position, settled := begun.tickets.wait(ctx, begun.admission, 0)
	resp.Admission, resp.Trace = begun.answer(position, settled), begun.trace
	return resp, nil
}

// begun is an admission that was begun or found. If it is fresh, its tickets
// are to run it.
type begun struct {
	*admission
	tickets *ticketTable
	fresh   bool
}

// decide asks for the selections of req, notes them in resp, and begins the
// admission if one was asked for and candidates are left.
func (s *server) decide(ctx context.Context, req *policypb.DecideRequest, resp *policypb.DecideResponse) (begun, error) {
	candidates, err := s.candidates(req.GetCatalog(), req.GetCandidates())
	if err != nil {
		return begun{}, err
	}
	verdicts, err := wire.VerdictsFromProto(req.GetVerdicts(), candidates.candidates)
	if err != nil {
		return begun{}, status.Error(codes.InvalidArgument, err.Error())
	}
	sel := &policy.SelectRequest{
		Request:    wire.RequestFromProto(req.GetRequest()),
		Candidates: candidates.offered,
		Verdicts:   verdicts,
	}
	for _, name := range req.GetSelect() {
		in, err := s.instance(name)
		if err != nil {
			return begun{}, err
		}
		if in.policies.Selection == nil {
			return begun{}, status.Errorf(codes.FailedPrecondition, "policy %s offers no selection", in.name)
		}
		if !selectOne(ctx, in, req.GetTrace(), sel, candidates, nextSelection(resp)) {
			return begun{}, nil
		}
	}
	if req.GetAdmit() == "" || len(sel.Candidates) == 0 {
		return begun{}, nil
	}
	in, err := s.admission(req.GetAdmit())
	if err != nil {
		return begun{}, err
	}
	tc := req.GetAdmitTrace()
	if tc == nil {
		tc = req.GetTrace()
	}
	return s.beginAdmission(ctx, in, tc, candidates, &policy.AdmitRequest{
		Request: sel.Request, Attempt: int(req.GetAttempt()), Candidates: sel.Candidates, NoWait: req.GetNoWait(),
	})
}

func (s *server) Admit(ctx context.Context, req *policypb.AdmitRequest) (*policypb.AdmitResponse, error) {
	begun, err := s.admit(ctx, req)
	if err != nil {
		return nil, err
	}
	if begun.fresh {
		go begun.tickets.run(begun.admission) // ends at the latest with the instance
	}
	position, settled := begun.tickets.wait(ctx, begun.admission, int(req.GetSeenPosition()))
	if !settled && ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &policypb.AdmitResponse{Admission: begun.answer(position, settled), Trace: begun.trace}, nil
}

// admit begins or finds the admission of req.
func (s *server) admit(ctx context.Context, req *policypb.AdmitRequest) (begun, error) {
	in, err := s.admission(req.GetInstance())
	if err != nil {
		return begun{}, err
	}
	cs, err := s.candidates(req.GetCatalog(), req.GetCandidates())
	if err != nil {
		return begun{}, err
	}
	if len(cs.offered) == 0 {
		return begun{}, status.Error(codes.InvalidArgument, "no candidates to admit")
	}
	return s.beginAdmission(ctx, in, req.GetTrace(), cs, &policy.AdmitRequest{
		Request: wire.RequestFromProto(req.GetRequest()), Attempt: int(req.GetAttempt()),
		Candidates: cs.offered, NoWait: req.GetNoWait(),
	})
}

// beginAdmission begins or finds the admission of a request, under a span that
// lasts as long as the policy thinks.
func (s *server) beginAdmission(ctx context.Context, in *instance, tc *policypb.TraceContext, cs candidates, req *policy.AdmitRequest) (begun, error) {
	indexes := make([]uint32, len(req.Candidates))
	for i := range req.Candidates {
		indexes[i] = cs.index[req.Candidates[i].ID]
	}
	key := ticketKey{req.Request.ID, req.Attempt}
	a, fresh, err := in.tickets.begin(ctx, key, req, indexes, func(ctx context.Context) (context.Context, func(error)) {
		ctx, span := startSpan(ctx, tc, in.name, "admit")
		return ctx, func(err error) { endSpan(span, err) }
	})
	return begun{a, in.tickets, fresh}, err
}

// answer returns the message about an admission that is settled or waits.
func (a *admission) answer(position int, settled bool) *policypb.Admission {
	if !settled {
		return &policypb.Admission{Result: &policypb.Admission_Waiting{Waiting: &policypb.Waiting{Position: int64(position)}}}
	}
	if a.err == nil {
		return &policypb.Admission{Result: &policypb.Admission_Admitted{Admitted: &policypb.Admitted{Index: a.index}}}
	}
	if r, ok := errors.AsType[*policy.Rejection](a.err); ok {
		return &policypb.Admission{Result: &policypb.Admission_Rejected{Rejected: wire.RejectionToProto(r)}}
	}
	return &policypb.Admission{Result: &policypb.Admission_Error{Error: wire.Text(a.err.Error())}}
}

func (s *server) Cancel(ctx context.Context, req *policypb.CancelRequest) (*policypb.CancelResponse, error) {
	in, err := s.admission(req.GetInstance())
	if err != nil {
		return &policypb.CancelResponse{}, nil // nothing can wait there
	}
	for _, t := range req.GetTickets() {
		in.tickets.end(ctx, ticketKey{t.GetId(), int(t.GetAttempt())}, policy.Outcome{Disposition: policy.ClientGone})
	}
	return &policypb.CancelResponse{}, nil
}

func (s *server) Release(ctx context.Context, req *policypb.ReleaseRequest) (*policypb.ReleaseResponse, error) {
	for _, r := range req.GetReleases() {
		in, err := s.admission(r.GetInstance())
		if err != nil {
			continue // its leases ended with it
		}
		ctx, span := startSpan(ctx, r.GetTrace(), in.name, "release")
		in.tickets.end(ctx, ticketKey{r.GetTicket().GetId(), int(r.GetTicket().GetAttempt())}, wire.OutcomeFromProto(r.GetOutcome()))
		span.End()
	}
	return &policypb.ReleaseResponse{}, nil
}

func (s *server) Restore(ctx context.Context, req *policypb.RestoreRequest) (*policypb.RestoreResponse, error) {
	in, err := s.admission(req.GetInstance())
	if err != nil {
		return nil, err
	}
	var running []policy.Held
	var indexes []uint32
	for _, t := range req.GetRunning() {
		cs, err := s.candidates(t.GetCatalog(), t.GetCandidates())
		if err != nil {
			return nil, err
		}
		if len(cs.offered) != 1 {
			return nil, status.Errorf(codes.InvalidArgument, "running request with %d candidates", len(cs.offered))
		}
		running = append(running, policy.Held{
			Request: wire.RequestFromProto(t.GetRequest()), Attempt: int(t.GetAttempt()), Candidate: cs.offered[0],
		})
		indexes = append(indexes, t.GetCandidates()[0].GetIndex())
	}
	var waiting []policy.AdmitRequest
	for _, t := range req.GetWaiting() {
		cs, err := s.candidates(t.GetCatalog(), t.GetCandidates())
		if err != nil {
			return nil, err
		}
		waiting = append(waiting, policy.AdmitRequest{
			Request: wire.RequestFromProto(t.GetRequest()), Attempt: int(t.GetAttempt()), Candidates: cs.offered,
		})
	}
	if err := in.tickets.restore(ctx, running, indexes, waiting); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &policypb.RestoreResponse{}, nil
}

// candidates are those of a catalog that a call offers.
type candidates struct {
	catalog
	offered []policy.Candidate
}

func (s *server) candidates(name string, refs []*policypb.CandidateRef) (candidates, error) {
	all, err := s.catalog(name)
	if err != nil {
		return candidates{}, err
	}
	cs := candidates{catalog: all}
	offered, wrong, ok := wire.CandidatesFromRefs(all.candidates, refs)
	if !ok {
		return candidates{}, status.Errorf(codes.InvalidArgument, "candidate %d of %d", wrong, len(all.candidates))
	}
	cs.offered = offered
	return cs, nil
}

func (s *server) admission(name string) (*instance, error) {
	in, err := s.instance(name)
	if err == nil && in.tickets == nil {
		err = status.Errorf(codes.FailedPrecondition, "policy %s offers no admission", in.name)
	}
	return in, err
}

// nextSelection returns a new element of the selections of resp.
func nextSelection(resp *policypb.DecideResponse) *policypb.Selection {
	n := len(resp.Selections)
	if n == cap(resp.Selections) || resp.Selections[:n+1][n] == nil {
		resp.Selections = append(resp.Selections, &policypb.Selection{})
	} else {
		resp.Selections = resp.Selections[:n+1] // which was used before
	}
	return resp.Selections[n]
}

// selectOne asks one instance, writes its answer to out, and leaves in req what
// the next one is asked. It reports whether the policy did not fail.
func selectOne(ctx context.Context, in *instance, tc *policypb.TraceContext, req *policy.SelectRequest, cs candidates, out *policypb.Selection) bool {
	ctx, span := startSpan(ctx, tc, in.name, "select")
	began := time.Now()
	selection, err := callSelect(ctx, in.policies.Selection, req)
	if err == nil {
		err = selection.Check(req.Candidates)
	}
	endSpan(span, err)
	out.Duration = durationpb.New(time.Since(began))
	if err != nil {
		out.Error = wire.Text(err.Error())
		return false
	}
	out.Verdicts, _ = wire.VerdictsToProto(out.Verdicts[:0], selection.Verdicts, cs.lookup) // cannot fail: Check has seen each of them
	req.Candidates = selection.Ranked(req.Candidates)
	req.Verdicts = append(req.Verdicts, selection.Verdicts...)
	return true
}

func callSelect(ctx context.Context, s policy.Selector, req *policy.SelectRequest) (selection policy.Selection, err error) {
	defer recoverTo(&err)
	return s.Select(ctx, req)
}

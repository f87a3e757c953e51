package caddymodule

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// admitBy asks admission policies one after the other for a lease on one of
// the candidates that are left. Only the last may let the request wait, and it
// names the candidate. It reports whether the request waited.
func (r *run) admitBy(ctx context.Context, uses []*use) (refusal *format.Refusal, waited bool) {
	for i, u := range uses {
		noWait := i < len(uses)-1
		refusal, waited = r.ask(ctx, []step{{admit: u}}, noWait)
		if refusal != nil {
			return refusal, false
		}
	}
	return nil, waited
}

// takeAdmission takes the answer of an admission policy, and waits if it says
// so. It ends the span.
func (r *run) takeAdmission(ctx context.Context, u *use, a *host.Admission, noWait bool, spans decisionSpans) (refusal *format.Refusal, waited bool) {
	rec := admissionRecord{At: r.at(spans.began), Policy: u.name}
	a, err := r.settle(u, a, noWait, spans, &rec)
	rec.Duration = inMilliseconds(time.Since(spans.began))
	if err != nil {
		spans.endAdmission(err)
		rec.Error = err.Error()
	} else if !r.moved {
		spans.admission(u.name, a)
		spans.endAdmission(nil)
		err = r.takeLease(u, a, &rec)
	}
	r.record.addAdmission(rec)
	switch {
	case r.moved:
	case err == nil && a.Rejection == nil:
	case err == nil:
		denied := format.Denied(a.Rejection.Reason, a.Rejection.RetryAfter)
		refusal = &denied
	case r.ended(ctx) != nil:
		refusal = r.ended(ctx)
	default:
		refusal = r.bypass(u, err)
	}
	return refusal, rec.Waited
}

// settle returns the answer that an admission comes to, which may take a wait.
func (r *run) settle(u *use, a *host.Admission, noWait bool, spans decisionSpans, rec *admissionRecord) (*host.Admission, error) {
	switch {
	case a == nil:
		return nil, errUnanswered
	case a.Waiting && noWait:
		u.instance.Cancel(r.req.ID, r.admits)
		return nil, errors.New("the policy lets a request wait though another policy follows")
	case a.Waiting:
		rec.Waited, rec.Position = true, a.Position
		spans.enqueued(a.Position)
		r.waited = true
		if r.req.WaitingSince.IsZero() {
			r.req.WaitingSince = time.Now()
		}
		req := host.AdmitRequest{
			Request: r.granted(u), Attempt: r.admits, Catalog: r.model.catalog, Candidates: r.ranked, SeenPosition: a.Position, Revoke: r.revoker(),
		}
		settled, moved := r.await(spans.admitCtx(), func(ctx context.Context) (*host.Admission, error) {
			return u.instance.Admit(ctx, req, spans.moved)
		})
		if r.moved, rec.Moved = moved, moved; moved {
			spans.judgedAnew()
			return nil, nil
		}
		if settled.err != nil {
			return nil, settled.err
		}
		a = settled.admission
	}
	return a, a.Err
}

// takeLease takes the lease that an admission gave, if it gave one.
func (r *run) takeLease(u *use, a *host.Admission, rec *admissionRecord) error {
	if a.Rejection != nil {
		rec.Rejected, rec.RetryAfter = a.Rejection.Reason, inMilliseconds(a.Rejection.RetryAfter)
		return nil
	}
	rec.Candidate = a.Candidate
	r.leases = append(r.leases, lease{use: u, attempt: r.admits})
	i := slices.IndexFunc(r.ranked, func(c policy.Candidate) bool { return c.ID == a.Candidate })
	if i < 0 {
		err := errors.New("the policy gave a lease on a candidate that is not left")
		rec.Error = err.Error()
		return err
	}
	r.chosen = r.ranked[i]
	return nil
}

// failover gives the lease on the candidate that failed back, and takes one on
// one of the rest. It refuses the request if there is none that it may have.
func (r *run) failover(ctx context.Context, rest []policy.Candidate, why policy.Disposition) *format.Refusal {
	r.base = rest
	for r.ranked = rest; len(r.ranked) > 0; r.ranked = without(r.ranked, r.chosen) {
		if refusal := r.giveBack(ctx); refusal != nil {
			return refusal
		}
		r.admits++
		refusal, waited := r.admitBy(ctx, r.h.chain.admits)
		if refusal != nil {
			return refusal
		}
		if r.moved { // to r.ranked
			r.moved = false
			continue
		}
		r.settled()
		if !waited {
			return nil
		}
		stands, refusal := r.stands(ctx)
		if stands || refusal != nil {
			return refusal
		}
	}
	refusal := format.Failed(why, max(0, time.Until(r.back)))
	return &refusal
}

// without returns candidates without one of them.
func without(candidates []policy.Candidate, one policy.Candidate) []policy.Candidate {
	var rest []policy.Candidate
	for _, c := range candidates {
		if c.ID != one.ID {
			rest = append(rest, c)
		}
	}
	return rest
}

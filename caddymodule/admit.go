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
		spans := r.startDecisionSpans(ctx, step{admit: u})
		noWait := i < len(uses)-1
		a, err := r.callAdmit(spans, u, noWait)
		if err != nil {
			spans.end(err)
			if refusal := r.unanswered(ctx, step{admit: u}, err); refusal != nil {
				return refusal, false
			}
			continue
		}
		refusal, waited = r.takeAdmission(ctx, u, a, time.Now(), noWait, spans)
		if refusal != nil {
			return refusal, false
		}
	}
	return nil, waited
}

// callAdmit asks one policy for an admission, without waiting for capacity.
func (r *run) callAdmit(spans decisionSpans, u *use, noWait bool) (*host.Admission, error) {
	d, err := r.callDecide(spans, step{admit: u}, noWait)
	if err != nil {
		return nil, err
	}
	if d.Admission == nil {
		return nil, errors.New("the plugin did not answer for it")
	}
	return d.Admission, nil
}

// takeAdmission takes the answer of an admission policy, and waits if it says
// so. It ends the spans.
func (r *run) takeAdmission(ctx context.Context, u *use, a *host.Admission, began time.Time, noWait bool, spans decisionSpans) (refusal *format.Refusal, waited bool) {
	rec := admissionRecord{Policy: u.name}
	var err error
	if a.Waiting && noWait {
		u.instance.Cancel(r.req.ID, r.admits)
		err = errors.New("the policy lets a request wait though another policy follows")
	} else if a.Waiting {
		waited, rec.Waited, rec.Position = true, true, a.Position
		spans.enqueued(a.Position)
		a, err = u.instance.Admit(spans.admitCtx(), host.AdmitRequest{
			Request: r.granted(u), Attempt: r.admits, Catalog: r.model.catalog, Candidates: r.ranked, SeenPosition: a.Position,
		}, spans.moved)
		r.admitting += time.Since(began)
	}
	if err == nil {
		err = a.Err
	}
	rec.Duration = inMilliseconds(time.Since(began))
	defer func() { r.record.Admissions = append(r.record.Admissions, rec) }()
	if err != nil {
		spans.end(err)
		rec.Error = err.Error()
		if refusal := r.ended(ctx); refusal != nil {
			return refusal, waited
		}
		return r.bypass(u, err), waited
	}
	spans.admission(u.name, a)
	spans.end(nil)
	if a.Rejection != nil {
		rec.Rejected, rec.RetryAfter = a.Rejection.Reason, inMilliseconds(a.Rejection.RetryAfter)
		refusal := format.Denied(a.Rejection.Reason, a.Rejection.RetryAfter)
		return &refusal, waited
	}
	rec.Candidate = a.Candidate
	r.leases = append(r.leases, lease{use: u, attempt: r.admits})
	i := slices.IndexFunc(r.ranked, func(c policy.Candidate) bool { return c.ID == a.Candidate })
	if i < 0 {
		return r.bypass(u, errors.New("the policy gave a lease on a candidate that was not offered")), waited
	}
	r.chosen = r.ranked[i]
	return nil, waited
}

// failover gives the lease on the candidate that failed back, and asks for one
// on another. It reports false if there is none, or none that the request may
// still have.
func (r *run) failover(ctx context.Context, d policy.Disposition) (bool, *format.Refusal) {
	failed := r.chosen
	ofKey := d == policy.RateLimited || d == policy.QuotaExhausted || d == policy.AuthFailed
	r.ranked = slices.DeleteFunc(r.ranked, func(c policy.Candidate) bool {
		return c.ID == failed.ID || ofKey && keyOf(c) == keyOf(failed)
	})
	for len(r.ranked) > 0 {
		if refusal := r.giveBack(ctx, d); refusal != nil {
			return false, refusal
		}
		r.admits++
		refusal, waited := r.admitBy(ctx, r.h.chain.admits)
		if refusal != nil {
			return false, refusal
		}
		r.settled()
		if !waited {
			return true, nil
		}
		stands, refusal := r.stands(ctx)
		if stands || refusal != nil {
			return stands, refusal
		}
		d, failed = policy.Denied, r.chosen
		r.ranked = slices.DeleteFunc(r.ranked, func(c policy.Candidate) bool { return c.ID == failed.ID })
	}
	return false, nil
}

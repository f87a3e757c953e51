package caddymodule

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// decide asks the policies until the request holds a lease on a candidate that
// still stands after a wait, or is refused.
func (r *run) decide(ctx context.Context) *format.Refusal {
	for {
		refusal, waited := r.selectAndAdmit(ctx)
		switch {
		case refusal != nil && r.mayOutwait():
			if r.outwait(ctx) {
				continue
			}
			return cmp.Or(r.ended(ctx), refusal)
		case refusal != nil || !waited:
			return refusal
		}
		if !r.moved {
			stands, refusal := r.stands(ctx)
			if stands || refusal != nil {
				return refusal
			}
		}
		r.moved = false
		if refusal := r.giveBack(ctx); refusal != nil {
			return refusal
		}
	}
}

// selectAndAdmit asks all policies about all candidates. It reports whether
// the request had to wait.
func (r *run) selectAndAdmit(ctx context.Context) (refusal *format.Refusal, waited bool) {
	r.base = r.offered()
	r.ranked, r.req.Scopes = r.h.app.shared.facts.describe(r.base, r.who.Scopes)
	r.verdicts = nil
	if len(r.ranked) == 0 { // who has what the request refers to does not serve it
		return nobody(nil, time.Now()), false
	}
	ch := r.h.chain
	if len(ch.selects) == 0 {
		if r.ranked = inService(r.ranked); len(r.ranked) == 0 {
			return nobody(nil, time.Now()), false
		}
	}
	var first *use
	if len(ch.admits) > 0 {
		first = ch.admits[0]
	}
	r.admits++
	if refusal, waited = r.ask(ctx, steps(ch.selects, first), len(ch.admits) > 1); refusal != nil {
		return refusal, false
	}
	if len(ch.admits) > 1 {
		var later bool
		if refusal, later = r.admitBy(ctx, ch.admits[1:]); refusal != nil {
			return refusal, false
		}
		waited = waited || later
	}
	if !r.moved {
		r.settled()
	}
	return nil, waited
}

// mayOutwait reports whether the request, which is refused because nobody can
// serve it now, has waited already: then it goes on to wait.
func (r *run) mayOutwait() bool {
	return r.waited && len(r.ranked) == 0 && len(r.fallbacks) == 0
}

// settled notes that the request may run on the chosen candidate.
func (r *run) settled() {
	if r.chosen.ID == "" {
		r.chosen = r.ranked[0] // no admission policy has named one
	}
	r.leased, r.req.WaitingSince = time.Now(), time.Time{}
	r.hold = r.h.app.shared.facts.begin(r.chosen, r.req)
}

// ask makes the round trips of steps, one after the other. The flag noWait
// tells the admission policy among them that another one follows.
func (r *run) ask(ctx context.Context, todo []step, noWait bool) (refusal *format.Refusal, waited bool) {
	for len(todo) > 0 {
		st := todo[0]
		todo = todo[1:]
		spans := r.startDecisionSpans(ctx, st)
		d, err := r.callDecide(spans, st, noWait)
		answered := spans.began // from when on the time is that of the admission
		if len(st.selects) > 0 {
			answered = time.Now()
			r.selecting += answered.Sub(spans.began)
		}
		if err != nil {
			spans.endSelection(err)
			spans.endAdmission(err)
			if refusal := r.unanswered(ctx, st, spans, err); refusal != nil {
				return refusal, false
			}
			continue
		}
		if len(st.selects) > 0 {
			failed, refusal := r.takeSelections(st, d, spans)
			if failed >= 0 || refusal != nil {
				r.drop(st, d, spans)
			}
			if refusal != nil {
				return refusal, false
			}
			if failed >= 0 { // go on without it
				todo = append(steps(st.selects[failed+1:], st.admit), todo...)
				continue
			}
		}
		if st.admit == nil {
			continue
		}
		refusal, waited = r.takeAdmission(ctx, st.admit, d.Admission, noWait, spans)
		r.admitting += time.Since(answered)
		if refusal != nil {
			return refusal, false
		}
	}
	return nil, waited
}

// callDecide makes one round trip.
func (r *run) callDecide(spans decisionSpans, st step, noWait bool) (*host.Decision, error) {
	ctx, timeout := spans.ctx, st.timeout()
	if st.open() { // rather go on without it than wait for its next process
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	uses := slices.Clone(st.selects)
	req := &host.DecideRequest{
		Catalog: r.model.catalog, Candidates: r.ranked, Verdicts: r.verdicts, Attempt: r.admits, NoWait: noWait,
		AdmitSpan: spans.admitSpan(),
	}
	for _, u := range st.selects {
		req.Select = append(req.Select, u.instance.Name())
	}
	if st.admit != nil {
		req.Admit, req.Revoke = st.admit.instance.Name(), r.revoker()
		uses = append(uses, st.admit)
	}
	req.Request = r.granted(uses...)
	return st.plugin().Decide(ctx, timeout, req)
}

// unanswered says what becomes of a request when the policies of a step could
// not be asked: nil if it goes on without them.
func (r *run) unanswered(ctx context.Context, st step, spans decisionSpans, err error) *format.Refusal {
	if refusal := r.ended(ctx); refusal != nil {
		return refusal
	}
	var refusal *format.Refusal
	for _, u := range st.selects {
		r.record.addSelection(selectionRecord{At: r.at(spans.began), Policy: u.name, Error: err.Error()})
		refusal = cmp.Or(refusal, r.bypass(u, err))
	}
	if st.admit != nil {
		r.record.addAdmission(admissionRecord{At: r.at(spans.began), Policy: st.admit.name, Error: err.Error()})
		refusal = cmp.Or(refusal, r.bypass(st.admit, err))
	}
	return refusal
}

// bypass says what becomes of a request whose policy failed: nil if the
// configuration lets it go on.
func (r *run) bypass(u *use, err error) *format.Refusal {
	if u.complains(time.Now()) {
		r.h.log.Error("policy failed", zap.String("policy", u.name), zap.Bool("bypassed", u.open),
			zap.String("request", r.record.ID), zap.Error(err))
	}
	if u.open {
		return nil
	}
	refusal := format.Denied(policy.ReasonPluginUnavailable, 0)
	return &refusal
}

// drop ends an admission that was decided together with a selection that does
// not hold.
func (r *run) drop(st step, d *host.Decision, spans decisionSpans) {
	if d.Admission == nil {
		return // nobody was asked for it, and its span is never ended
	}
	spans.endAdmission(nil)
	st.admit.instance.Cancel(r.req.ID, r.admits)
	r.admits++ // the next one must not be what is cancelled
}

// takeSelections takes the answers of the selection policies of a step, and
// ends their span. It returns the index of one that failed and may be left
// out, or -1.
func (r *run) takeSelections(st step, d *host.Decision, spans decisionSpans) (failed int, refusal *format.Refusal) {
	for i, u := range st.selects {
		s := host.SelectionResult{Err: errUnanswered}
		if i < len(d.Selections) {
			s = d.Selections[i]
		}
		if err := r.takeSelection(u, s, spans); err != nil {
			spans.endSelection(err)
			return i, r.bypass(u, err)
		}
		if len(r.ranked) == 0 {
			spans.endSelection(nil)
			return -1, nobody(r.verdicts, time.Now())
		}
	}
	spans.endSelection(nil)
	return -1, nil
}

// errUnanswered is the error of a policy that its plugin says nothing of.
var errUnanswered = errors.New("the plugin did not answer for it")

// takeSelection takes the answer of one selection policy.
func (r *run) takeSelection(u *use, s host.SelectionResult, spans decisionSpans) error {
	rec := selectionRecord{At: r.at(spans.began), Policy: u.name, Duration: inMilliseconds(s.Duration)}
	defer func() { r.record.addSelection(rec) }()
	err := s.Err
	if err == nil {
		err = s.Check(r.ranked)
	}
	if err != nil {
		rec.Error = err.Error()
		return err
	}
	verdicts := complete(s.Selection, r.ranked)
	rec.Verdicts = recordVerdicts(verdicts)
	spans.verdicts(u.name, verdicts)
	r.verdicts = append(r.verdicts, verdicts...)
	r.ranked = inService(s.Ranked(r.ranked))
	return nil
}

// inService returns the candidates without those that the operator took out
// of service: no policy can send a request there.
func inService(candidates []policy.Candidate) []policy.Candidate {
	return slices.DeleteFunc(candidates, func(c policy.Candidate) bool { return c.Disabled })
}

// complete returns the verdicts of s, which passed its Check, with one for each
// candidate that was offered and not mentioned.
func complete(s policy.Selection, offered []policy.Candidate) []policy.Verdict {
	if len(s.Verdicts) == len(offered) {
		return s.Verdicts // no two are on one candidate, and none is on another one
	}
	mentioned := make(map[string]bool, len(s.Verdicts))
	for i := range s.Verdicts {
		mentioned[s.Verdicts[i].Candidate] = true
	}
	verdicts := append(make([]policy.Verdict, 0, len(offered)), s.Verdicts...)
	for i := range offered {
		if id := offered[i].ID; !mentioned[id] {
			why := policy.Why{Reason: policy.ReasonNotRanked}
			verdicts = append(verdicts, policy.Verdict{Candidate: id, Status: policy.Skipped, Why: why})
		}
	}
	return verdicts
}

// nobody refuses a request that no candidate can serve now: with the instant
// at which the first one may, if any verdict tells.
func nobody(verdicts []policy.Verdict, now time.Time) *format.Refusal {
	at, reason := soonest(verdicts, now)
	var after time.Duration
	if !at.IsZero() {
		after = at.Sub(now)
	}
	refusal := format.Denied(reason, after)
	return &refusal
}

// soonest returns when the first of the candidates that are skipped may serve,
// and why it may not before; or the zero time, if no verdict tells.
func soonest(verdicts []policy.Verdict, now time.Time) (at time.Time, why policy.Reason) {
	why = policy.ReasonNoCandidate
	for _, v := range verdicts {
		if v.Status == policy.Skipped && v.Until.After(now) && (at.IsZero() || v.Until.Before(at)) {
			why, at = v.Reason, v.Until
		}
	}
	return at, why
}

// stands asks the selection policies once more about the candidate that the
// request waited for.
func (r *run) stands(ctx context.Context) (bool, *format.Refusal) {
	if len(r.h.chain.selects) == 0 {
		return true, nil
	}
	r.hold.undo() // so that it does not count against itself
	ranked, verdicts := r.ranked, r.verdicts
	chosen, scopes := r.h.app.shared.facts.describe([]policy.Candidate{r.chosen}, r.who.Scopes)
	r.ranked, r.verdicts, r.req.Scopes = chosen, nil, scopes
	refusal, _ := r.ask(ctx, steps(r.h.chain.selects, nil), false)
	stands := len(r.ranked) > 0
	r.ranked, r.verdicts = ranked, verdicts
	if ended := r.ended(ctx); ended != nil {
		return false, ended
	}
	if !stands {
		return false, nil
	}
	if refusal == nil {
		r.settled()
	}
	return refusal == nil, refusal
}

// giveBackTimeout is how long policies may take to note the end of a lease
// before the request asks for another one, if they are there. It is longer than
// it takes to notice that they are not.
const giveBackTimeout = 5 * time.Second

// giveBack ends the leases of the request, and waits until the policies know:
// what a failed candidate held is freed before another one is taken.
func (r *run) giveBack(ctx context.Context) *format.Refusal {
	acks := r.release(trace.SpanContextFromContext(ctx))
	r.chosen = policy.Candidate{}
	timeout := time.NewTimer(giveBackTimeout)
	defer timeout.Stop()
	for len(acks) > 0 {
		select {
		case <-acks[0]:
			acks = acks[1:]
		case <-timeout.C:
			if !r.h.chain.returns() {
				refusal := format.Denied(policy.ReasonPluginUnavailable, 0)
				return &refusal
			}
			timeout.Reset(giveBackTimeout)
		case <-ctx.Done():
			return r.ended(ctx)
		}
	}
	return nil
}

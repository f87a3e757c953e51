package caddymodule

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// An admitted is what an admission policy came to.
type admitted struct {
	admission *host.Admission
	err       error
}

// await waits for the answer of an admission policy and judges the request
// anew meanwhile. It reports whether others may serve it by now than those that
// the policy was asked about; the wait has then ended, and the request is to
// ask again, which keeps its place in line.
func (r *run) await(ctx context.Context, admit func(context.Context) (*host.Admission, error)) (a admitted, moved bool) {
	if len(r.h.chain.selects) == 0 {
		a.admission, a.err = admit(ctx)
		return a, false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan admitted, 1)
	go func() { // ends with ctx at the latest
		var a admitted
		a.admission, a.err = admit(ctx)
		done <- a
	}()
	others, moved := r.watchOthers(ctx, done, &a)
	if !moved {
		return a, false
	}
	cancel()
	if a = <-done; a.err == nil { // it was answered at the same moment, about those that were asked about
		return a, false
	}
	r.ranked = others
	return admitted{}, true
}

// outwait waits, after a request has waited already, until there is anybody who
// can serve it. It reports false if nobody will be in time.
func (r *run) outwait(ctx context.Context) bool {
	r.ranked = nil
	if r.soonest(r.verdicts).IsZero() {
		return false
	}
	var none admitted
	others, found := r.watchOthers(ctx, nil, &none)
	r.ranked = others
	return found && ctx.Err() == nil
}

// watchOthers judges the request anew whenever something that concerns it has
// changed, until others may serve it than r.ranked, and returns them. It
// reports false if ctx or the wait, whose answer it takes, has ended before.
func (r *run) watchOthers(ctx context.Context, done <-chan admitted, answer *admitted) (others []policy.Candidate, moved bool) {
	ws := &r.h.app.shared.waiting
	w := ws.join(r.req.Arrival)
	defer ws.leave(w)
	ws.judged(w, r.ranked, skippedOf(r.base, r.ranked))
	last := time.Now()
	timer := time.NewTimer(r.untilJudged(r.verdicts))
	defer timer.Stop()
	for {
		select {
		case *answer = <-done:
			return nil, false
		case <-ctx.Done():
			if done != nil {
				*answer = <-done
			}
			return nil, false
		case due := <-w.wake:
			timer.Reset(max(time.Until(due), time.Until(last.Add(judgePause))))
			continue
		case <-timer.C:
		}
		ranked, verdicts, ok := r.rejudge(ctx)
		last = time.Now()
		switch {
		case !ok: // nobody could be asked
			verdicts = r.verdicts
		case len(ranked) == 0 && (done == nil || !r.soonest(verdicts).IsZero()):
			if done == nil && r.soonest(verdicts).IsZero() {
				return nil, true // to be refused
			}
			ws.judged(w, r.ranked, r.base)
		case !sameCandidates(ranked, r.ranked):
			return ranked, true
		default:
			ws.judged(w, ranked, skippedOf(r.base, ranked))
		}
		timer.Reset(r.untilJudged(verdicts))
	}
}

// rejudge asks the selection policies once more about all candidates, which
// leaves no trace. It reports false if one of them could not be asked.
func (r *run) rejudge(ctx context.Context) (ranked []policy.Candidate, verdicts []policy.Verdict, ok bool) {
	kept, keptVerdicts, tracer, record := r.ranked, r.verdicts, r.tracer, r.record
	defer func() { r.ranked, r.verdicts, r.tracer, r.record = kept, keptVerdicts, tracer, record }()
	r.tracer, r.record, r.verdicts = nil, &decision{ID: record.ID}, nil
	r.ranked, r.req.Scopes = r.h.app.shared.facts.describe(r.base, r.who.Scopes)
	refusal, _ := r.ask(ctx, steps(r.h.chain.selects, nil), false)
	return r.ranked, r.verdicts, refusal == nil || len(r.ranked) == 0
}

// resting are the reasons for which a provider is left alone until an instant
// that it named. Where another instant ends, nobody knows what comes then.
var resting = []policy.Reason{policy.ReasonCooldown, policy.ReasonAccountQuota, policy.ReasonProviderQuota}

// soonest returns when the first of those that rest may serve the request
// again, if that is before its deadline, and else the zero time.
func (r *run) soonest(verdicts []policy.Verdict) time.Time {
	var rests []policy.Verdict
	for _, v := range verdicts {
		if slices.Contains(resting, v.Reason) {
			rests = append(rests, v)
		}
	}
	at, _ := soonest(rests, time.Now())
	if !r.req.Deadline.IsZero() && at.After(r.req.Deadline) {
		return time.Time{}
	}
	return at
}

// untilJudged returns how long to wait until the request is judged anew: until
// a verdict may change by itself, but not for ever.
func (r *run) untilJudged(verdicts []policy.Verdict) time.Duration {
	wait := judgeAgain - rand.N(judgeAgain/5)
	if at, _ := soonest(verdicts, time.Now()); !at.IsZero() {
		wait = min(wait, time.Until(at)+rand.N(judgePause/5))
	}
	return max(wait, judgePause)
}

// skippedOf returns those of base that are not ranked.
func skippedOf(base, ranked []policy.Candidate) []policy.Candidate {
	in := make(map[string]bool, len(ranked))
	for i := range ranked {
		in[ranked[i].ID] = true
	}
	var skipped []policy.Candidate
	for i := range base {
		if !in[base[i].ID] {
			skipped = append(skipped, base[i])
		}
	}
	return skipped
}

// sameCandidates reports whether a and b have the same candidates, in any order.
func sameCandidates(a, b []policy.Candidate) bool {
	return len(a) == len(b) && len(skippedOf(a, b)) == 0
}

package caddymodule

import (
	"net/http"
	"slices"
	"time"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

// roundTripper sends a request to the candidate that it holds a lease on, and
// to the next one while an attempt fails in a way that another candidate may
// do better. What it returns is final.
type roundTripper struct{}

// RoundTrip implements [http.RoundTripper].
func (roundTripper) RoundTrip(out *http.Request) (*http.Response, error) {
	r := runOf(out.Context())
	resp, err := r.roundTrip(out)
	if err != nil || r.pulse == nil {
		return resp, err
	}
	return r.afterHeartbeat(resp)
}

func (r *run) roundTrip(out *http.Request) (*http.Response, error) {
	for {
		a := r.newAttempt()
		resp, err := a.send(out)
		a.disposition = a.judge(resp, err)
		r.upstream += time.Since(a.began)
		if r.passes(a, err) {
			return a.deliver(out, resp), nil
		}
		again := r.again(a)
		var rest []policy.Candidate
		if again {
			rest = r.rest(a)
		}
		a.finish(a.disposition)
		if len(rest) > 0 {
			discard(resp)
			refusal := r.failover(r.ctx, rest, a.disposition)
			if refusal == nil {
				continue
			}
			if !fallsBack(refusal) || !r.fallBack(r.ctx, a) {
				return nil, &refusalError{Refusal: *refusal}
			}
			continue
		}
		if !again || a.elsewhere() || !r.fallBack(r.ctx, a) {
			r.chosen = a.candidate
			return a.final(out, resp)
		}
		discard(resp)
	}
}

// again reports whether the request may be sent once more after a failed, to
// whomever that is.
func (r *run) again(a *attempt) bool {
	if !a.disposition.Failover() && !a.elsewhere() || r.ctx.Err() != nil {
		return false
	}
	if r.op.Once && !a.refused() {
		a.noRetry = "job" // it may run
		return false
	}
	if r.tries >= r.h.Attempts {
		a.noRetry = "attempts"
		return false
	}
	deadline, _ := r.ctx.Deadline()
	if a.disposition == policy.Timeout && time.Until(deadline) < time.Since(a.began)/2 {
		a.noRetry = "time" // another one would hardly get to its end
		return false
	}
	return true
}

// passes reports whether the answer of a goes to the caller as it comes.
func (r *run) passes(a *attempt, err error) bool {
	return err == nil && r.ctx.Err() == nil && !a.disposition.Failover() && !a.elsewhere() && a.status != http.StatusUnauthorized
}

// refuses reports whether what the provider refused is true of c, too.
func (a *attempt) refuses(c policy.Candidate) bool {
	switch a.about {
	case policy.SubjectAccount:
		return c.Account == a.candidate.Account
	case policy.SubjectModel:
		return keyNameOf(c) == keyNameOf(a.candidate) && c.Model == a.candidate.Model
	}
	return keyNameOf(c) == keyNameOf(a.candidate)
}

// rest returns the candidates of the same model that may still serve the
// request after a failed.
func (r *run) rest(a *attempt) []policy.Candidate {
	d := a.disposition
	ofKey := d == policy.RateLimited || d == policy.QuotaExhausted || d == policy.AuthFailed
	// A prompt that is too long is so for all keys, but a limit may be not.
	ofModel := d == policy.ContextLength && a.status != http.StatusTooManyRequests && a.status != http.StatusRequestEntityTooLarge
	var rest, same []policy.Candidate
	for _, c := range r.ranked {
		switch {
		case c.ID == a.candidate.ID, ofKey && a.refuses(c):
		case a.elsewhere() && accountOf(c) == accountOf(a.candidate):
		case ofModel && (c.Model == a.candidate.Model || !a.isLarger(c)):
		case d.Failure() && c.Provider == a.candidate.Provider:
			same = append(same, c)
			rest = append(rest, c)
		default:
			rest = append(rest, c)
		}
	}
	if len(same) > 0 && !r.h.app.shared.budgets.retry(a.candidate.Provider) {
		rest = slices.DeleteFunc(rest, func(c policy.Candidate) bool { return c.Provider == a.candidate.Provider })
		if len(rest) == 0 {
			a.noRetry = "budget"
		}
	}
	return rest
}

// deliver returns an answer that goes to the caller. The attempt ends with its
// body.
func (a *attempt) deliver(out *http.Request, resp *http.Response) *http.Response {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return a.deliverSession(out, resp)
	}
	a.noteOrigin()
	resp = answering(out, resp)
	if a.asked && format.IsStream(resp.Header) {
		resp.Body, resp.ContentLength = format.WithoutUsage(resp.Body), -1
		resp.Header.Del("Content-Length")
	}
	resp.Body = &answer{a: a, body: resp.Body, plain: resp.ContentLength >= 0}
	return resp
}

// answering returns resp as the answer to out. It has no trailers, in which no
// provider says anything: the transport would add them to resp itself.
func answering(out *http.Request, resp *http.Response) *http.Response {
	answer := *resp
	answer.Request, answer.Trailer = out, nil
	return &answer
}

// final ends a request whose last attempt failed: with the provider's own
// answer, unless that is about our key or there is none.
func (a *attempt) final(out *http.Request, resp *http.Response) (*http.Response, error) {
	wait := max(0, time.Until(a.r.back))
	if resp != nil && a.mayBeShown() && a.r.ctx.Err() == nil {
		switch {
		case wait > 0 && (a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable):
			format.SetRetryAfter(resp.Header, wait)
		case a.status == http.StatusTooManyRequests && a.until.IsZero(): // it makes no sense, if it is there
			resp.Header.Del("Retry-After")
			resp.Header.Del("Retry-After-Ms")
		}
		return answering(out, resp), nil
	}
	discard(resp)
	refusal := a.r.ended(a.r.ctx)
	switch {
	case refusal != nil:
	case a.disposition == policy.ClientFault: // a 401 that is not about our key
		refusal = new(format.Refusal)
		*refusal = format.UnknownModel(a.r.facts.Model)
	default:
		refusal = a.failed(a.disposition, wait)
	}
	return nil, &refusalError{Refusal: *refusal}
}

// failed returns the refusal that tells that the attempt ended with d.
func (a *attempt) failed(d policy.Disposition, wait time.Duration) *format.Refusal {
	refusal := format.Failed(d, wait)
	if a.timeout != "" {
		refusal = format.TimedOut(a.timeout, wait)
	}
	return &refusal
}

// mayBeShown reports whether the provider's error is the caller's business.
func (a *attempt) mayBeShown() bool {
	return a.disposition != policy.AuthFailed && a.status >= http.StatusBadRequest && a.status != http.StatusUnauthorized
}

// discard closes an answer that nobody needs, if there is one. Its error would
// tell nothing more.
func discard(resp *http.Response) {
	if resp != nil {
		_ = resp.Body.Close()
	}
}

package caddymodule

import (
	"net/http"
	"strconv"
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
	for {
		a := r.newAttempt()
		resp, err := a.send(out)
		a.disposition = a.judge(resp, err)
		r.upstream += time.Since(a.began)
		if r.passes(a, err) {
			return a.deliver(out, resp), nil
		}
		a.finish(a.disposition)
		rest := r.rest(a)
		if len(rest) == 0 {
			return a.final(out, resp)
		}
		discard(resp)
		if refusal := r.failover(r.ctx, rest, a.disposition); refusal != nil {
			return nil, &refusalError{*refusal}
		}
	}
}

// passes reports whether the answer of a goes to the caller as it comes.
func (r *run) passes(a *attempt, err error) bool {
	return err == nil && r.ctx.Err() == nil && !a.disposition.Failover() && a.status != http.StatusUnauthorized
}

// rest returns the candidates that may still serve the request after a failed.
func (r *run) rest(a *attempt) []policy.Candidate {
	d := a.disposition
	if !d.Failover() || r.tries >= r.h.Attempts || r.ctx.Err() != nil {
		return nil
	}
	ofKey := d == policy.RateLimited || d == policy.QuotaExhausted || d == policy.AuthFailed
	// A prompt that is too long is so for all keys, but a limit may be not.
	ofModel := d == policy.ContextLength && a.status != http.StatusTooManyRequests
	var rest []policy.Candidate
	for _, c := range r.ranked {
		same := c.ID == a.candidate.ID || ofKey && keyOf(c) == keyOf(a.candidate) || ofModel && c.Model == a.candidate.Model
		if !same {
			rest = append(rest, c)
		}
	}
	return rest
}

// deliver returns an answer that goes to the caller. The attempt ends with its
// body.
func (a *attempt) deliver(out *http.Request, resp *http.Response) *http.Response {
	resp = answering(out, resp)
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
		if wait > 0 && (a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable) {
			resp.Header.Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
			resp.Header.Set("Retry-After-Ms", strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10))
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
	return nil, &refusalError{*refusal}
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

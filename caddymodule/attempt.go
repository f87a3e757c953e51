package caddymodule

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// roundTripper sends a request to the candidate that it holds a lease on, and
// to the next one while an attempt fails in a way that another candidate may
// do better. What it returns is final.
type roundTripper struct{}

// RoundTrip implements [http.RoundTripper].
func (roundTripper) RoundTrip(out *http.Request) (*http.Response, error) {
	ctx := out.Context()
	r := runOf(ctx)
	for {
		r.tries++
		a := r.newAttempt(ctx)
		resp, err := a.send(out)
		disposition := a.judge(resp, err)
		if err == nil && !disposition.Failover() {
			r.upstream += time.Since(a.began)
			return a.deliver(out, resp), nil
		}
		r.upstream += time.Since(a.began)
		a.finish(disposition)
		if refusal := r.ended(ctx); refusal != nil {
			return nil, &refusalError{*refusal}
		}
		if r.tries < r.h.Attempts && disposition.Failover() {
			failed := r.chosen
			next, refusal := r.failover(ctx, disposition)
			if refusal != nil {
				return nil, &refusalError{*refusal}
			}
			if next {
				continue
			}
			r.chosen = failed
		}
		return a.final(out, resp, disposition)
	}
}

// An attempt is one sending of a request to one candidate.
type attempt struct {
	r         *run
	candidate policy.Candidate
	number    int
	ctx       context.Context
	span      trace.Span
	began     time.Time
	first     time.Duration // to the first content, or 0
	status    int
	until     time.Time
	errorBody []byte // the beginning of an answer that is an error
	meter     *format.Meter
	finished  bool
}

func (r *run) newAttempt(ctx context.Context) *attempt {
	a := &attempt{r: r, candidate: r.chosen, number: r.tries, began: time.Now()}
	p := r.h.providers[a.candidate.Provider]
	port, _ := strconv.Atoi(p.url.Port())
	if port == 0 {
		port = map[string]int{"http": 80, "https": 443}[p.url.Scheme]
	}
	a.ctx, a.span = r.tracer.Start(ctx, r.op.Name+" "+a.candidate.Model, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			semconv.GenAIOperationNameKey.String(r.op.Name),
			semconv.GenAIProviderNameKey.String(a.candidate.Provider),
			semconv.GenAIRequestModel(a.candidate.Model),
			semconv.ServerAddress(p.url.Hostname()),
			semconv.ServerPort(port),
			attribute.String("usher.candidate", a.candidate.ID),
			attribute.Int("usher.attempt", a.number),
		))
	return a
}

// send sends the request to the candidate, with the candidate's key.
func (a *attempt) send(out *http.Request) (*http.Response, error) {
	p := a.r.h.providers[a.candidate.Provider]
	body := a.r.facts.Splice(a.r.body, a.candidate.Model)
	req := out.Clone(a.ctx)
	req.URL.Scheme, req.URL.Host = p.url.Scheme, p.url.Host
	req.URL.Path, req.URL.RawPath = joinPath(p.url.Path, out.URL.Path), ""
	req.Host, req.RequestURI = p.url.Host, ""
	req.ContentLength, req.TransferEncoding = int64(len(body)), nil
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = req.GetBody() // never fails
	if p.HeaderUp != nil {
		p.HeaderUp.ApplyToRequest(req)
	}
	a.r.op.SetCredential(req.Header, p.secrets[a.candidate.Key])
	return p.transport.RoundTrip(req)
}

// maxErrorBody is how much of an answer that is an error is looked at.
const maxErrorBody = 64 << 10

// judge says what an answer, or the lack of one, means.
func (a *attempt) judge(resp *http.Response, err error) policy.Disposition {
	if err != nil {
		return dispositionOf(a.ctx, err)
	}
	a.status = resp.StatusCode
	if resp.StatusCode >= http.StatusBadRequest {
		// What can be read of an error is all that there is to judge it by.
		a.errorBody, _ = io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		resp.Body = readCloser{io.MultiReader(bytes.NewReader(a.errorBody), resp.Body), resp.Body}
	}
	result := a.r.op.Classify(time.Now(), resp.StatusCode, resp.Header, a.errorBody)
	a.until = result.Until
	return result.Disposition
}

type readCloser struct {
	io.Reader
	io.Closer
}

// dispositionOf says what a transport's error means.
func dispositionOf(ctx context.Context, err error) policy.Disposition {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return policy.ClientGone
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return policy.Timeout
	}
	if _, ok := errors.AsType[reverseproxy.DialError](err); ok {
		return policy.ConnectFailed
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return policy.Timeout
	}
	return policy.UpstreamError
}

// deliver returns an answer that goes to the caller. The attempt ends with its
// body.
func (a *attempt) deliver(out *http.Request, resp *http.Response) *http.Response {
	a.meter = format.NewMeter(a.r.op, resp.Header, a.r.facts.Stream)
	resp.Request = out
	resp.Body = &answer{a: a, body: resp.Body}
	return resp
}

// final ends a request whose last attempt failed: with the provider's own
// answer, unless that is about our key or there is none.
func (a *attempt) final(out *http.Request, resp *http.Response, d policy.Disposition) (*http.Response, error) {
	after := max(0, time.Until(a.until))
	if resp == nil || d == policy.AuthFailed || resp.StatusCode < http.StatusBadRequest {
		if resp != nil {
			_ = resp.Body.Close() // its error tells nothing more
		}
		return nil, &refusalError{format.Failed(d, after)}
	}
	if after > 0 && resp.Header.Get("Retry-After") == "" {
		resp.Header.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	resp.Request = out
	return resp, nil
}

// finish ends the attempt and tells everybody about it. Only the first call
// counts.
func (a *attempt) finish(d policy.Disposition) {
	if a.finished {
		return
	}
	a.finished = true
	var usage *policy.Usage
	if a.meter != nil {
		usage = a.meter.Usage()
	}
	res := policy.AttemptResult{
		RequestID: a.r.req.ID, Attempt: a.r.admits, Candidate: a.candidate, Format: a.r.op.Format, Operation: a.r.op.Name,
		Disposition: d, Status: a.status, Until: a.until, Usage: usage,
		FirstEvent: a.first, Duration: time.Since(a.began), EndedAt: time.Now(),
	}
	a.r.last = outcome{disposition: d, usage: usage}
	a.r.h.app.shared.facts.learn(res)
	for plugin, instances := range a.r.h.observers {
		plugin.Observe(instances, host.Observation{Catalog: a.r.model.catalog, Result: res})
	}
	a.r.record.Attempts = append(a.r.record.Attempts, recordAttempt(a.number, res))
	a.endSpan(res)
}

func (a *attempt) endSpan(res policy.AttemptResult) {
	a.span.SetAttributes(attribute.String("usher.disposition", string(res.Disposition)))
	if a.status != 0 {
		a.span.SetAttributes(semconv.HTTPResponseStatusCode(a.status))
	}
	if !res.Until.IsZero() {
		a.span.SetAttributes(attribute.String("usher.until", res.Until.UTC().Format(time.RFC3339Nano)))
	}
	if u := res.Usage; u != nil {
		a.span.SetAttributes(
			semconv.GenAIUsageInputTokens(int(u.InputTokens)), semconv.GenAIUsageOutputTokens(int(u.OutputTokens)))
	}
	if res.Disposition != policy.OK && res.Disposition != policy.ClientGone {
		a.span.SetStatus(codes.Error, string(res.Disposition))
		a.span.SetAttributes(semconv.ErrorTypeKey.String(string(res.Disposition)))
	}
	a.span.End()
}

func recordAttempt(number int, res policy.AttemptResult) attemptRecord {
	rec := attemptRecord{
		Attempt: number, Candidate: res.Candidate.ID, Status: res.Status, Disposition: res.Disposition,
		Until: optionalTime(res.Until), FirstEvent: inMilliseconds(res.FirstEvent), Duration: inMilliseconds(res.Duration),
	}
	if res.Usage != nil {
		u := usageRecord(*res.Usage)
		rec.Usage = &u
	}
	return rec
}

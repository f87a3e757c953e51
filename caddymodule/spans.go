package caddymodule

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// startServerSpan starts the span of the request, unless Caddy's own tracing
// has one, in which case that is taken. Where it is not recorded, nothing below
// it is, and no request pays for describing what nobody will see.
func (r *run) startServerSpan(ctx context.Context, in *http.Request, id string) context.Context {
	r.server = trace.SpanFromContext(ctx)
	tracer := r.h.app.tracer(r.server)
	if !r.server.SpanContext().IsValid() {
		ctx = propagator.Extract(ctx, propagation.HeaderCarrier(in.Header))
		if tracer == nil {
			r.server = trace.SpanFromContext(ctx) // of the caller, or none
			return ctx
		}
		r.owned = true
		ctx, r.server = tracer.Start(ctx, in.Method+" "+r.op.Route, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithTimestamp(r.began),
			trace.WithAttributes(
				semconv.HTTPRequestMethodKey.String(in.Method),
				semconv.HTTPRoute(r.op.Route),
				semconv.URLPath(brief(in.URL.Path, maxSpanPath)),
				semconv.URLScheme(scheme(in)),
			))
	}
	if !r.server.IsRecording() {
		return ctx
	}
	r.tracer = tracer
	r.server.SetAttributes(
		attribute.String("usher.request.id", id),
		attribute.String("usher.caller.id", r.who.ID),
		attribute.String("usher.caller.group", r.who.Group),
	)
	return ctx
}

// maxSpanPath is how much of a path a span shows. Callers write what they like
// into some.
const maxSpanPath = 512

func scheme(in *http.Request) string {
	if in.TLS != nil {
		return "https"
	}
	return "http"
}

// describeServerSpan adds what is known once the request has been read.
func (r *run) describeServerSpan() {
	if r.tracer == nil {
		return
	}
	r.server.SetAttributes(
		semconv.GenAIOperationNameKey.String(r.op.Name),
		attribute.Int("usher.priority", r.req.Priority),
	)
	if r.req.Model != "" {
		r.server.SetAttributes(semconv.GenAIRequestModel(r.req.Model))
	}
}

// endServerSpan says how the request ended, and ends its span if that is ours.
func (r *run) endServerSpan() {
	if r.tracer == nil {
		return
	}
	r.server.SetAttributes(attribute.String("usher.disposition", string(r.record.Disposition)))
	if r.refusal != nil {
		r.server.SetAttributes(attribute.String("usher.refusal", r.refusal.Code))
	}
	if !r.owned {
		return
	}
	if r.record.Status != 0 {
		r.server.SetAttributes(semconv.HTTPResponseStatusCode(r.record.Status))
	}
	if r.record.Status >= http.StatusInternalServerError {
		r.server.SetStatus(codes.Error, string(r.record.Disposition))
		r.server.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(r.record.Status)))
	}
	r.server.End()
}

// decisionSpans are the spans of one step: usher.select if it selects, and
// usher.admit if it admits.
type decisionSpans struct {
	began           time.Time
	ctx             context.Context // for the call of the step
	outer           context.Context
	selecting, wait trace.Span // nil if the step has no such part, unless nothing is recorded
}

func (r *run) startDecisionSpans(ctx context.Context, st step) decisionSpans {
	s := decisionSpans{began: time.Now(), ctx: ctx, outer: ctx}
	if r.tracer == nil {
		s.selecting, s.wait = noop.Span{}, noop.Span{}
		return s
	}
	if st.admit != nil {
		s.ctx, s.wait = r.tracer.Start(ctx, "usher.admit", trace.WithAttributes(attribute.Int("usher.lease", r.admits)))
	}
	if len(st.selects) > 0 {
		s.ctx, s.selecting = r.tracer.Start(ctx, "usher.select")
	}
	return s
}

// judgedAnew ends the span of an admission that the request waited for until
// others could serve it.
func (s decisionSpans) judgedAnew() {
	s.wait.AddEvent("moved to other candidates")
	s.wait.End()
}

// admitCtx is the context under whose span the admission goes on.
func (s decisionSpans) admitCtx() context.Context { return trace.ContextWithSpan(s.outer, s.wait) }

// admitSpan is the span of the admission, or the zero value.
func (s decisionSpans) admitSpan() trace.SpanContext {
	if s.wait == nil {
		return trace.SpanContext{}
	}
	return s.wait.SpanContext()
}

// verdicts adds an event for each candidate, and ends nothing.
func (s decisionSpans) verdicts(policyName string, verdicts []policy.Verdict) {
	if !s.selecting.IsRecording() {
		return
	}
	for _, v := range verdicts {
		attrs := []attribute.KeyValue{
			attribute.String("usher.policy", policyName),
			attribute.String("usher.candidate", v.Candidate),
			attribute.String("usher.verdict", string(v.Status)),
		}
		if v.Reason != "" {
			attrs = append(attrs, attribute.String("usher.reason", string(v.Reason)))
		}
		if v.Detail != "" {
			attrs = append(attrs, attribute.String("usher.detail", v.Detail))
		}
		if v.Observed != 0 || v.Limit != 0 {
			attrs = append(attrs, attribute.Float64("usher.observed", v.Observed), attribute.Float64("usher.limit", v.Limit))
		}
		if !v.Until.IsZero() {
			attrs = append(attrs, attribute.String("usher.until", v.Until.UTC().Format(time.RFC3339Nano)))
		}
		s.selecting.AddEvent("verdict", trace.WithAttributes(attrs...))
	}
}

// enqueued tells that the request begins to wait.
func (s decisionSpans) enqueued(position int) {
	s.wait.AddEvent("enqueued", trace.WithAttributes(attribute.Int("usher.position", position)))
}

// moved tells that the place in line changed.
func (s decisionSpans) moved(position int) {
	s.wait.AddEvent("moved", trace.WithAttributes(attribute.Int("usher.position", position)))
}

// admission tells what the admission policy said.
func (s decisionSpans) admission(policyName string, a *host.Admission) {
	if !s.wait.IsRecording() {
		return
	}
	s.wait.SetAttributes(attribute.String("usher.policy", policyName))
	if a.Span.IsValid() {
		s.wait.AddLink(trace.Link{SpanContext: a.Span})
	}
	if a.Rejection != nil {
		s.wait.AddEvent("rejected", trace.WithAttributes(attribute.String("usher.reason", string(a.Rejection.Reason))))
		return
	}
	s.wait.SetAttributes(attribute.String("usher.candidate", a.Candidate))
	s.wait.AddEvent("admitted", trace.WithAttributes(attribute.String("usher.candidate", a.Candidate)))
}

// endSelection ends the span of the selection, if there is one.
func (s decisionSpans) endSelection(err error) { s.end(s.selecting, err) }

// endAdmission ends the span of the admission, if there is one.
func (s decisionSpans) endAdmission(err error) { s.end(s.wait, err) }

func (s decisionSpans) end(span trace.Span, err error) {
	if span == nil {
		return
	}
	switch {
	case err == nil:
	case errors.Is(s.outer.Err(), context.Canceled):
		span.AddEvent(string(policy.ClientGone)) // which is nobody's error
	default:
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// startSpan starts the span of the attempt.
func (a *attempt) startSpan() {
	if a.r.tracer == nil {
		a.ctx, a.span = a.r.ctx, noop.Span{}
		return
	}
	u := a.r.h.providers[a.candidate.Provider].url
	port, _ := strconv.Atoi(u.Port())
	if port == 0 {
		port = map[string]int{"http": 80, "https": 443}[u.Scheme]
	}
	attrs := []attribute.KeyValue{
		semconv.GenAIOperationNameKey.String(a.r.op.Name),
		semconv.GenAIProviderNameKey.String(a.candidate.Provider),
		semconv.ServerAddress(u.Hostname()),
		semconv.ServerPort(port),
		attribute.String("usher.candidate", a.candidate.ID),
		attribute.Int("usher.attempt", a.number),
	}
	if a.r.op.APIType != "" {
		attrs = append(attrs, attribute.String("openai.api.type", a.r.op.APIType))
	}
	name := a.r.op.Name
	if m := a.candidate.Model; m != "" {
		name += " " + m
		attrs = append(attrs, semconv.GenAIRequestModel(m))
	}
	a.ctx, a.span = a.r.tracer.Start(a.r.ctx, name,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
}

// endSpan says how the attempt ended.
func (a *attempt) endSpan(res policy.AttemptResult) {
	if a.r.tracer == nil {
		return
	}
	a.span.SetAttributes(attribute.String("usher.disposition", string(res.Disposition)))
	if a.status != 0 {
		a.span.SetAttributes(semconv.HTTPResponseStatusCode(a.status))
	}
	if a.timeout != "" {
		a.span.SetAttributes(attribute.String("usher.timeout", a.timeout))
	}
	if !res.Until.IsZero() {
		a.span.SetAttributes(attribute.String("usher.until", res.Until.UTC().Format(time.RFC3339Nano)))
	}
	if res.About != "" {
		a.span.SetAttributes(attribute.String("usher.about", string(res.About)))
	}
	if u := res.Usage; u != nil {
		a.span.SetAttributes(
			semconv.GenAIUsageInputTokens(int(u.InputTokens)), semconv.GenAIUsageOutputTokens(int(u.OutputTokens)))
	}
	if res.Disposition != policy.OK && res.Disposition != policy.ClientGone {
		a.span.SetStatus(codes.Error, cmp.Or(a.errorText(), string(res.Disposition)))
		a.span.SetAttributes(semconv.ErrorTypeKey.String(string(res.Disposition)))
	}
	a.span.End()
}

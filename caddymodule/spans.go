package caddymodule

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// startServerSpan starts the span of the request, unless Caddy's own tracing
// has one, in which case that is taken.
func (r *run) startServerSpan(ctx context.Context, in *http.Request, id string) context.Context {
	span := trace.SpanFromContext(ctx)
	r.tracer = r.h.app.tracer(span)
	if span.SpanContext().IsValid() {
		span.SetAttributes(attribute.String("usher.request.id", id))
		return ctx
	}
	ctx = propagator.Extract(ctx, propagation.HeaderCarrier(in.Header))
	ctx, r.span = r.tracer.Start(ctx, in.Method+" "+r.op.Route, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(r.began),
		trace.WithAttributes(
			semconv.HTTPRequestMethodKey.String(in.Method),
			semconv.HTTPRoute(r.op.Route),
			semconv.URLPath(in.URL.Path),
			attribute.String("usher.request.id", id),
		))
	return ctx
}

// describeServerSpan adds what is known once the request has been read.
func (r *run) describeServerSpan() {
	if r.span == nil || !r.span.IsRecording() {
		return
	}
	r.span.SetAttributes(
		semconv.GenAIOperationNameKey.String(r.op.Name),
		semconv.GenAIRequestModel(r.req.Model),
		attribute.String("usher.caller.id", r.req.Caller.ID),
		attribute.String("usher.caller.group", r.req.Caller.Group),
		attribute.Int("usher.priority", r.req.Priority),
	)
}

// endServerSpan ends the span of the request, if it is ours.
func (r *run) endServerSpan() {
	if r.span == nil {
		return
	}
	if r.record.Status != 0 {
		r.span.SetAttributes(semconv.HTTPResponseStatusCode(r.record.Status))
	}
	r.span.SetAttributes(attribute.String("usher.disposition", string(r.record.Disposition)))
	if r.refusal != nil {
		r.span.SetAttributes(attribute.String("usher.refusal", r.refusal.Code))
	}
	if r.record.Status >= http.StatusInternalServerError {
		r.span.SetStatus(codes.Error, string(r.record.Disposition))
		r.span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(r.record.Status)))
	}
	r.span.End()
}

// decisionSpans are the spans of one step: usher.select if it selects, and
// usher.admit if it admits.
type decisionSpans struct {
	ctx             context.Context // for the call of the step
	outer           context.Context
	selecting, wait trace.Span // nil if the step has no such part
}

func (r *run) startDecisionSpans(ctx context.Context, st step) decisionSpans {
	s := decisionSpans{ctx: ctx, outer: ctx}
	if st.admit != nil {
		s.ctx, s.wait = r.tracer.Start(ctx, "usher.admit", trace.WithAttributes(attribute.Int("usher.lease", r.admits)))
	}
	if len(st.selects) > 0 {
		s.ctx, s.selecting = r.tracer.Start(ctx, "usher.select")
	}
	return s
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

// enqueued tells that the request begins to wait. The selection is over.
func (s decisionSpans) enqueued(position int) {
	if s.selecting != nil {
		s.selecting.End()
	}
	s.wait.AddEvent("enqueued", trace.WithAttributes(attribute.Int("usher.position", position)))
}

// moved tells that the place in line changed.
func (s decisionSpans) moved(position int) {
	s.wait.AddEvent("moved", trace.WithAttributes(attribute.Int("usher.position", position)))
}

// admission tells what the admission policy said.
func (s decisionSpans) admission(policyName string, a *host.Admission) {
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

// end ends the spans. Ending one twice changes nothing.
func (s decisionSpans) end(err error) {
	for _, span := range []trace.Span{s.selecting, s.wait} {
		if span == nil {
			continue
		}
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

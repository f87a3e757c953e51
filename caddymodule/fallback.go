package caddymodule

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

// HeaderModel is the header of an answer that a fallback has served. Its value
// is the public name of that model.
const HeaderModel = "X-Usher-Model"

// decideOrFallBack asks the policies for a lease on a candidate of the model,
// or else of one of its fallbacks. It returns the refusal of the model itself
// if none may serve the request.
func (r *run) decideOrFallBack(ctx context.Context) *format.Refusal {
	refusal := r.decide(ctx)
	if refusal != nil && fallsBack(refusal) && r.fallBack(ctx, nil) {
		return nil
	}
	return refusal
}

// fallsBack reports whether another model may be served where this one is
// refused: not where nobody could decide, or the request is over.
func fallsBack(refusal *format.Refusal) bool {
	switch refusal.Code {
	case string(policy.ReasonPluginUnavailable), string(policy.ReasonStoreUnavailable), string(policy.ClientGone):
		return false
	}
	return refusal.Code != format.DeadlineExceeded().Code
}

// fallBack takes a lease on a candidate of the first fallback that is left and
// has one. It reports false if there is none. The attempt that failed, if there
// was one, is a: a prompt that was too long needs a larger window.
func (r *run) fallBack(ctx context.Context, a *attempt) bool {
	for len(r.fallbacks) > 0 && ctx.Err() == nil {
		m := r.h.models[modelKey{r.op.Format, r.fallbacks[0]}]
		if r.fallbacks = r.fallbacks[1:]; m == nil { // nobody speaks the format
			continue
		}
		if a != nil && a.disposition == policy.ContextLength && !slices.ContainsFunc(m.catalog.Candidates, a.isLarger) {
			continue
		}
		if r.giveBack(ctx) != nil {
			return false
		}
		r.model, r.req.Model = m, m.name
		r.record.Fallbacks = append(r.record.Fallbacks, fallbackRecord{At: r.at(time.Now()), Model: m.name})
		r.server.AddEvent("fallback", trace.WithAttributes(attribute.String("usher.model", m.name)))
		if r.decide(ctx) == nil {
			return true
		}
	}
	return false
}

// isLarger reports whether a prompt that is too long for the candidate of a
// may fit c.
func (a *attempt) isLarger(c policy.Candidate) bool {
	return a.candidate.ContextTokens == 0 || c.ContextTokens == 0 || c.ContextTokens > a.candidate.ContextTokens
}

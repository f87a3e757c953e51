package wire

import (
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
)

// RequestToProto translates r.
func RequestToProto(r *policy.Request) *policypb.Request {
	return &policypb.Request{
		Id:              r.ID,
		Format:          Text(r.Format),
		Operation:       Text(r.Operation),
		Model:           Text(r.Model),
		Stream:          r.Stream,
		Caller:          Text(r.Caller.ID),
		Group:           Text(r.Caller.Group),
		Priority:        int64(r.Priority),
		Arrival:         r.Arrival,
		InputTokens:     r.InputTokens,
		MaxOutputTokens: r.MaxOutputTokens,
		Affinity:        Text(r.Affinity),
		ReceivedAt:      timeToProto(r.ReceivedAt),
		Deadline:        timeToProto(r.Deadline),
		Scopes:          scopesToProto(r.Scopes),
		Headers:         headerToProto(r.Header),
		Body:            r.Body,
	}
}

// RequestFromProto translates r.
func RequestFromProto(r *policypb.Request) *policy.Request {
	return &policy.Request{
		ID:              r.GetId(),
		Format:          r.GetFormat(),
		Operation:       r.GetOperation(),
		Model:           r.GetModel(),
		Stream:          r.GetStream(),
		Caller:          policy.Caller{ID: r.GetCaller(), Group: r.GetGroup()},
		Priority:        int(r.GetPriority()),
		Arrival:         r.GetArrival(),
		InputTokens:     r.GetInputTokens(),
		MaxOutputTokens: r.GetMaxOutputTokens(),
		Affinity:        r.GetAffinity(),
		ReceivedAt:      timeFromProto(r.GetReceivedAt()),
		Deadline:        timeFromProto(r.GetDeadline()),
		Scopes:          scopesFromProto(r.GetScopes()),
		Header:          headerFromProto(r.GetHeaders()),
		Body:            r.GetBody(),
	}
}

// Text returns s as protobuf wants it. A caller may send any bytes in a header
// or as the name of a model, and that must not fail the call.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// CandidateToProto translates c without what changes about it.
func CandidateToProto(c policy.Candidate) *policypb.Candidate {
	scopes := scopesToProto(c.Scopes)
	for _, s := range scopes {
		s.Used = 0 // a reference leaves out what is 0
	}
	return &policypb.Candidate{
		Id:            c.ID,
		Provider:      c.Provider,
		Key:           c.Key,
		Model:         c.Model,
		Priority:      int64(c.Priority),
		Weight:        int64(c.Weight),
		Disabled:      c.Disabled,
		ContextTokens: c.ContextTokens,
		Labels:        c.Labels,
		Scopes:        scopes,
	}
}

// CandidateFromProto translates c.
func CandidateFromProto(c *policypb.Candidate) policy.Candidate {
	return policy.Candidate{
		ID:            c.GetId(),
		Provider:      c.GetProvider(),
		Key:           c.GetKey(),
		Model:         c.GetModel(),
		Priority:      int(c.GetPriority()),
		Weight:        int(c.GetWeight()),
		Disabled:      c.GetDisabled(),
		ContextTokens: c.GetContextTokens(),
		Labels:        c.GetLabels(),
		Scopes:        scopesFromProto(c.GetScopes()),
	}
}

// RefToProto translates the changing part of c, which has the given index in
// its catalog.
func RefToProto(index int, c policy.Candidate) *policypb.CandidateRef {
	ref := &policypb.CandidateRef{
		Index:     uint32(index),
		InFlight:  int64(c.Load.InFlight),
		LatencyUs: c.Load.Latency.Microseconds(),
		Failures:  c.Load.Failures,
	}
	for i, s := range c.Scopes {
		if s.Used == 0 {
			continue
		}
		for len(ref.Used) < i {
			ref.Used = append(ref.Used, 0)
		}
		ref.Used = append(ref.Used, s.Used)
	}
	return ref
}

// CandidateFromRef returns the candidate of a catalog that ref names, with its
// changing part. It reports false if the catalog has no such index.
func CandidateFromRef(catalog []policy.Candidate, ref *policypb.CandidateRef) (policy.Candidate, bool) {
	if int64(ref.GetIndex()) >= int64(len(catalog)) {
		return policy.Candidate{}, false
	}
	c := catalog[ref.GetIndex()]
	c.Load = policy.Load{
		InFlight: int(ref.GetInFlight()),
		Latency:  time.Duration(ref.GetLatencyUs()) * time.Microsecond,
		Failures: ref.GetFailures(),
	}
	if used := ref.GetUsed(); len(used) > 0 {
		scopes := make([]policy.Scope, len(c.Scopes))
		copy(scopes, c.Scopes)
		for i := range min(len(used), len(scopes)) {
			scopes[i].Used = used[i]
		}
		c.Scopes = scopes
	}
	return c, true
}

// OutcomeToProto translates o.
func OutcomeToProto(o policy.Outcome) *policypb.Outcome {
	return &policypb.Outcome{
		Disposition: string(o.Disposition),
		Usage:       usageToProto(o.Usage),
		Duration:    durationpb.New(o.Duration),
	}
}

// OutcomeFromProto translates o.
func OutcomeFromProto(o *policypb.Outcome) policy.Outcome {
	return policy.Outcome{
		Disposition: policy.Disposition(o.GetDisposition()),
		Usage:       usageFromProto(o.GetUsage()),
		Duration:    o.GetDuration().AsDuration(),
	}
}

// ResultToProto translates r, whose candidate has the given index in catalog.
func ResultToProto(catalog string, index int, r policy.AttemptResult) *policypb.AttemptResult {
	return &policypb.AttemptResult{
		RequestId:   r.RequestID,
		Attempt:     uint32(r.Attempt),
		Catalog:     catalog,
		Index:       uint32(index),
		Format:      r.Format,
		Operation:   r.Operation,
		Disposition: string(r.Disposition),
		Status:      int32(r.Status),
		Until:       timeToProto(r.Until),
		Usage:       usageToProto(r.Usage),
		FirstEvent:  durationpb.New(r.FirstEvent),
		Duration:    durationpb.New(r.Duration),
		EndedAt:     timeToProto(r.EndedAt),
	}
}

// ResultFromProto translates r, whose candidate is c.
func ResultFromProto(c policy.Candidate, r *policypb.AttemptResult) policy.AttemptResult {
	return policy.AttemptResult{
		RequestID:   r.GetRequestId(),
		Attempt:     int(r.GetAttempt()),
		Candidate:   c,
		Format:      r.GetFormat(),
		Operation:   r.GetOperation(),
		Disposition: policy.Disposition(r.GetDisposition()),
		Status:      int(r.GetStatus()),
		Until:       timeFromProto(r.GetUntil()),
		Usage:       usageFromProto(r.GetUsage()),
		FirstEvent:  r.GetFirstEvent().AsDuration(),
		Duration:    r.GetDuration().AsDuration(),
		EndedAt:     timeFromProto(r.GetEndedAt()),
	}
}

func usageToProto(u *policy.Usage) *policypb.Usage {
	if u == nil {
		return nil
	}
	return &policypb.Usage{
		InputTokens:     u.InputTokens,
		OutputTokens:    u.OutputTokens,
		CachedTokens:    u.CachedTokens,
		ReasoningTokens: u.ReasoningTokens,
	}
}

func usageFromProto(u *policypb.Usage) *policy.Usage {
	if u == nil {
		return nil
	}
	return &policy.Usage{
		InputTokens:     u.GetInputTokens(),
		OutputTokens:    u.GetOutputTokens(),
		CachedTokens:    u.GetCachedTokens(),
		ReasoningTokens: u.GetReasoningTokens(),
	}
}

var (
	kindToProto = map[policy.ScopeKind]policypb.ScopeKind{
		policy.ScopeConcurrency: policypb.ScopeKind_SCOPE_KIND_CONCURRENCY,
		policy.ScopeRequests:    policypb.ScopeKind_SCOPE_KIND_REQUESTS,
		policy.ScopeTokens:      policypb.ScopeKind_SCOPE_KIND_TOKENS,
	}
	kindFromProto = map[policypb.ScopeKind]policy.ScopeKind{
		policypb.ScopeKind_SCOPE_KIND_CONCURRENCY: policy.ScopeConcurrency,
		policypb.ScopeKind_SCOPE_KIND_REQUESTS:    policy.ScopeRequests,
		policypb.ScopeKind_SCOPE_KIND_TOKENS:      policy.ScopeTokens,
	}
)

func scopesToProto(scopes []policy.Scope) []*policypb.Scope {
	if len(scopes) == 0 {
		return nil
	}
	out := make([]*policypb.Scope, len(scopes))
	for i, s := range scopes {
		out[i] = &policypb.Scope{Id: Text(s.ID), Kind: kindToProto[s.Kind], Limit: s.Limit, Used: s.Used}
		if s.Window != 0 {
			out[i].Window = durationpb.New(s.Window)
		}
	}
	return out
}

func scopesFromProto(scopes []*policypb.Scope) []policy.Scope {
	if len(scopes) == 0 {
		return nil
	}
	out := make([]policy.Scope, len(scopes))
	for i, s := range scopes {
		out[i] = policy.Scope{
			ID:     s.GetId(),
			Kind:   kindFromProto[s.GetKind()],
			Limit:  s.GetLimit(),
			Window: s.GetWindow().AsDuration(),
			Used:   s.GetUsed(),
		}
	}
	return out
}

func headerToProto(h http.Header) []*policypb.Header {
	var out []*policypb.Header
	for name, values := range h {
		h := &policypb.Header{Name: Text(name), Values: make([]string, len(values))}
		for i, v := range values {
			h.Values[i] = Text(v)
		}
		out = append(out, h)
	}
	return out
}

func headerFromProto(hs []*policypb.Header) http.Header {
	if len(hs) == 0 {
		return nil
	}
	h := make(http.Header, len(hs))
	for _, x := range hs {
		h[x.GetName()] = x.GetValues()
	}
	return h
}

func timeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func timeFromProto(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

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
		MinInputTokens:  r.MinInputTokens,
		MaxOutputTokens: r.MaxOutputTokens,
		Affinity:        Text(r.Affinity),
		ReceivedAt:      timeToProto(r.ReceivedAt),
		Deadline:        timeToProto(r.Deadline),
		WaitingSince:    timeToProto(r.WaitingSince),
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
		MinInputTokens:  r.GetMinInputTokens(),
		MaxOutputTokens: r.GetMaxOutputTokens(),
		Affinity:        r.GetAffinity(),
		ReceivedAt:      timeFromProto(r.GetReceivedAt()),
		Deadline:        timeFromProto(r.GetDeadline()),
		WaitingSince:    timeFromProto(r.GetWaitingSince()),
		Scopes:          scopesFromProto(r.GetScopes()),
		Header:          headerFromProto(r.GetHeaders()),
		Body:            r.GetBody(),
	}
}

// Text returns s as protobuf wants it. A caller may send any bytes in a header
// or as the name of a model, and that must not fail the call.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

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

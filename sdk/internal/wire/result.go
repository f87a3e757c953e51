package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
)

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
		About:       string(r.About),
		Windows:     windowsToProto(r.Windows),
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
		About:       policy.Subject(r.GetAbout()),
		Windows:     windowsFromProto(r.GetWindows()),
		Usage:       usageFromProto(r.GetUsage()),
		FirstEvent:  r.GetFirstEvent().AsDuration(),
		Duration:    r.GetDuration().AsDuration(),
		EndedAt:     timeFromProto(r.GetEndedAt()),
	}
}

func windowsToProto(windows []policy.Window) []*policypb.Window {
	if len(windows) == 0 {
		return nil
	}
	out := make([]*policypb.Window, len(windows))
	for i, w := range windows {
		out[i] = &policypb.Window{
			Name: Text(w.Name), About: string(w.About), Kind: kindToProto[w.Kind],
			Limit: w.Limit, Used: w.Used,
			Resets: timeToProto(w.Resets), ObservedAt: timeToProto(w.ObservedAt),
		}
		if w.Length != 0 {
			out[i].Length = durationpb.New(w.Length)
		}
	}
	return out
}

func windowsFromProto(windows []*policypb.Window) []policy.Window {
	if len(windows) == 0 {
		return nil
	}
	out := make([]policy.Window, len(windows))
	for i, w := range windows {
		out[i] = policy.Window{
			Name: w.GetName(), About: policy.Subject(w.GetAbout()), Kind: kindFromProto[w.GetKind()],
			Length: w.GetLength().AsDuration(), Limit: w.GetLimit(), Used: w.GetUsed(),
			Resets: timeFromProto(w.GetResets()), ObservedAt: timeFromProto(w.GetObservedAt()),
		}
	}
	return out
}

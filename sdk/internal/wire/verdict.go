package wire

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
)

var (
	statusToProto = map[policy.Status]policypb.Status{
		policy.Eligible: policypb.Status_STATUS_ELIGIBLE,
		policy.Busy:     policypb.Status_STATUS_BUSY,
		policy.Skipped:  policypb.Status_STATUS_SKIPPED,
	}
	statusFromProto = map[policypb.Status]policy.Status{
		policypb.Status_STATUS_ELIGIBLE: policy.Eligible,
		policypb.Status_STATUS_BUSY:     policy.Busy,
		policypb.Status_STATUS_SKIPPED:  policy.Skipped,
	}
)

// VerdictsToProto appends the translations of vs to out, and uses what lies
// behind its end again. The candidates have the indexes that index tells; a
// verdict on one that index does not know is an error.
func VerdictsToProto(out []*policypb.Verdict, vs []policy.Verdict, index func(id string) (uint32, bool)) ([]*policypb.Verdict, error) {
	out = slices.Grow(out, len(vs))
	for i := range vs {
		v := &vs[i]
		n, ok := index(v.Candidate)
		if !ok {
			return nil, fmt.Errorf("verdict on candidate %q, which was not offered", v.Candidate)
		}
		out = out[:len(out)+1]
		if out[len(out)-1] == nil {
			out[len(out)-1] = &policypb.Verdict{}
		}
		to := out[len(out)-1]
		to.Index, to.Status, to.Reason, to.Detail = n, statusToProto[v.Status], string(v.Reason), Text(v.Detail)
		to.Observed, to.Limit, to.Until = v.Observed, v.Limit, timeToProto(v.Until)
	}
	return out, nil
}

// VerdictsFromProto translates vs, whose indexes are those of catalog.
func VerdictsFromProto(vs []*policypb.Verdict, catalog []policy.Candidate) ([]policy.Verdict, error) {
	out := make([]policy.Verdict, len(vs))
	for i, v := range vs {
		if int64(v.GetIndex()) >= int64(len(catalog)) {
			return nil, fmt.Errorf("verdict on candidate %d of %d", v.GetIndex(), len(catalog))
		}
		out[i] = policy.Verdict{
			Candidate: catalog[v.GetIndex()].ID,
			Status:    statusFromProto[v.GetStatus()],
			Why: policy.Why{
				Reason:   policy.Reason(v.GetReason()),
				Detail:   v.GetDetail(),
				Observed: v.GetObserved(),
				Limit:    v.GetLimit(),
				Until:    timeFromProto(v.GetUntil()),
			},
		}
	}
	return out, nil
}

// RejectionToProto translates r.
func RejectionToProto(r *policy.Rejection) *policypb.Rejected {
	return &policypb.Rejected{Reason: Text(string(r.Reason)), RetryAfter: durationpb.New(r.RetryAfter)}
}

// RejectionFromProto translates r.
func RejectionFromProto(r *policypb.Rejected) *policy.Rejection {
	return &policy.Rejection{Reason: ReasonFromProto(r.GetReason()), RetryAfter: max(r.GetRetryAfter().AsDuration(), 0)}
}

// ReasonFromProto translates why something was refused. A reason outside of the
// closed set becomes [policy.ReasonPolicy], since it is a refusal for whatever
// reason.
func ReasonFromProto(s string) policy.Reason {
	if reason := policy.Reason(s); reason.Valid() {
		return reason
	}
	return policy.ReasonPolicy
}

package keys

import (
	"strings"
	"time"

	"github.com/usherproxy/usher/policy"
)

// Facts are all that is known when one candidate is judged for one request.
// Nil breakers are closed.
type Facts struct {
	// Request and Candidate are what the host says.
	Request   *policy.Request
	Candidate *policy.Candidate

	// Quota is when the used-up quota of the key resets.
	Quota time.Time

	// Credential is open if the provider refused the key, and Permission if
	// it refused the key for this model.
	Credential, Permission *Breaker

	// Circuit is open after repeated failures of the key with this format.
	Circuit *Breaker

	// Cooldown is until when the key wants no requests for this model.
	Cooldown time.Time
}

// Probe reports whether the request would be the one that probes the
// candidate, provided that the candidate is eligible.
func (f *Facts) Probe() bool {
	return f.Credential.open() || f.Permission.open() || f.Circuit.open()
}

// Evaluate judges one candidate. The first rule that matches gives the reason.
// It reads f only and allocates nothing.
func Evaluate(now time.Time, f *Facts) (policy.Status, policy.Why) {
	for _, match := range rules {
		why := match(now, f)
		switch {
		case why.Reason == "":
		case why.Reason.Capacity():
			return policy.Busy, why
		default:
			return policy.Skipped, why
		}
	}
	return policy.Eligible, policy.Why{}
}

// A rule explains what is wrong with a candidate, or returns the zero Why.
type rule func(now time.Time, f *Facts) policy.Why

var rules = [...]rule{
	callerConcurrency,
	fleetConcurrency,
	accountQuota,
	accountInvalid,
	providerConcurrency,
	keyConcurrency,
	otherConcurrency,
	circuitOpen,
	cooldown,
	disabled,
	contextTooSmall,
}

func callerConcurrency(_ time.Time, f *Facts) policy.Why {
	if why := full(f.Request.Scopes, "caller:", policy.ReasonCallerConcurrency); why.Reason != "" {
		return why
	}
	return full(f.Request.Scopes, "group:", policy.ReasonCallerConcurrency)
}

func fleetConcurrency(_ time.Time, f *Facts) policy.Why {
	return full(f.Request.Scopes, "", policy.ReasonConcurrency)
}

func providerConcurrency(_ time.Time, f *Facts) policy.Why {
	return full(f.Candidate.Scopes, "provider:", policy.ReasonProviderConcurrency)
}

func keyConcurrency(_ time.Time, f *Facts) policy.Why {
	return full(f.Candidate.Scopes, "key:", policy.ReasonKeyConcurrency)
}

func otherConcurrency(_ time.Time, f *Facts) policy.Why {
	return full(f.Candidate.Scopes, "", policy.ReasonConcurrency)
}

// full returns reason for the first concurrency scope of the given kind of
// owner that has no place left.
func full(scopes []policy.Scope, owner string, reason policy.Reason) policy.Why {
	for i := range scopes {
		s := &scopes[i]
		if s.Kind == policy.ScopeConcurrency && s.Limit > 0 && s.Used >= s.Limit && strings.HasPrefix(s.ID, owner) {
			return policy.Why{Reason: reason, Observed: float64(s.Used), Limit: float64(s.Limit)}
		}
	}
	return policy.Why{}
}

func accountQuota(now time.Time, f *Facts) policy.Why {
	return pending(now, f.Quota, policy.ReasonAccountQuota)
}

func cooldown(now time.Time, f *Facts) policy.Why {
	return pending(now, f.Cooldown, policy.ReasonCooldown)
}

// pending returns reason if until is ahead.
func pending(now, until time.Time, reason policy.Reason) policy.Why {
	if now.Before(until) {
		return policy.Why{Reason: reason, Until: until}
	}
	return policy.Why{}
}

func accountInvalid(now time.Time, f *Facts) policy.Why {
	if f.Credential.open() {
		if why := f.Credential.blocks(now, f.Request.ID, policy.ReasonAccountInvalid, guardKey); why.Reason != "" {
			return why
		}
	}
	if f.Permission.open() {
		return f.Permission.blocks(now, f.Request.ID, policy.ReasonAccountInvalid, guardModel)
	}
	return policy.Why{}
}

func circuitOpen(now time.Time, f *Facts) policy.Why {
	if !f.Circuit.open() {
		return policy.Why{}
	}
	why := f.Circuit.blocks(now, f.Request.ID, policy.ReasonCircuitOpen, "")
	if why.Reason != "" {
		why.Observed, why.Limit = float64(f.Circuit.Failures), float64(f.Circuit.Limit)
	}
	return why
}

// probeDue explains why a candidate that may be probed is left to another
// request.
func (f *Facts) probeDue() policy.Why {
	if f.Credential.open() || f.Permission.open() {
		return policy.Why{Reason: policy.ReasonAccountInvalid, Detail: detailProbeDue}
	}
	return policy.Why{
		Reason: policy.ReasonCircuitOpen, Detail: detailProbeDue,
		Observed: float64(f.Circuit.Failures), Limit: float64(f.Circuit.Limit),
	}
}

func disabled(_ time.Time, f *Facts) policy.Why {
	if f.Candidate.Disabled {
		return policy.Why{Reason: policy.ReasonDisabled}
	}
	return policy.Why{}
}

// contextTooSmall must stay the last rule: Select takes it back where no
// candidate has room.
func contextTooSmall(_ time.Time, f *Facts) policy.Why {
	if size := f.Candidate.ContextTokens; size > 0 && f.Request.InputTokens > size {
		return policy.Why{
			Reason:   policy.ReasonContextTooSmall,
			Observed: float64(f.Request.InputTokens), Limit: float64(size),
		}
	}
	return policy.Why{}
}

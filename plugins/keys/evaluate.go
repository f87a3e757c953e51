package keys

import (
	"strings"
	"time"

	"github.com/usherproxy/usher/policy"
)

// Evaluate judges one candidate. The first rule that matches gives the reason.
// It reads f only and allocates nothing.
func Evaluate(now time.Time, f *Facts) (policy.Status, policy.Why) {
	if why := ofRequest(f.Request.Scopes); why.Reason != "" {
		return policy.Busy, why
	}
	return ofCandidate(now, f)
}

// ofRequest matches the rules about the request, which are the same for all
// candidates.
func ofRequest(scopes []policy.Scope) policy.Why {
	if !anyFull(scopes) {
		return policy.Why{}
	}
	for _, owner := range [...]string{"caller:", "group:"} {
		if why := full(scopes, owner, policy.ScopeConcurrency, policy.ReasonCallerConcurrency); why.Reason != "" {
			return why
		}
	}
	if why := full(scopes, "", policy.ScopeConcurrency, policy.ReasonConcurrency); why.Reason != "" {
		return why
	}
	return fullRate(scopes)
}

// ofCandidate matches the rules about the candidate.
func ofCandidate(now time.Time, f *Facts) (policy.Status, policy.Why) {
	full, easy := anyFull(f.Candidate.Scopes), f.easy(now)
	if !full && easy {
		return policy.Eligible, policy.Why{}
	}
	for i := range rules {
		r := &rules[i]
		if r.full && !full || !r.full && easy {
			continue
		}
		if why := r.match(now, f); why.Reason != "" {
			return r.status, why
		}
	}
	return policy.Eligible, policy.Why{}
}

// easy reports whether no rule but those about full scopes can match.
func (f *Facts) easy(now time.Time) bool {
	return !f.Candidate.Disabled && !tooLong(f) && f.quiet(now)
}

// A rule explains what is wrong with a candidate.
type rule struct {
	// match returns the zero Why if nothing is wrong.
	match func(now time.Time, f *Facts) policy.Why

	// status is that of a candidate with which something is wrong.
	status policy.Status

	// full is set if the rule is about full scopes.
	full bool
}

var rules = [...]rule{
	{providerQuota, policy.Skipped, false},
	{accountQuota, policy.Skipped, false},
	{accountInvalid, policy.Skipped, false},
	{providerConcurrency, policy.Busy, true},
	{keyConcurrency, policy.Busy, true},
	{otherConcurrency, policy.Busy, true},
	{circuitOpen, policy.Skipped, false},
	{healthZero, policy.Skipped, false},
	{keyRequests, policy.Busy, true},
	{keyTokens, policy.Busy, true},
	{otherRate, policy.Busy, true},
	{cooldown, policy.Skipped, false},
	{disabled, policy.Skipped, false},
	{contextTooSmall, policy.Skipped, false},
	{learnedRequests, policy.Busy, false},
}

func anyFull(scopes []policy.Scope) bool {
	for i := range scopes {
		if s := &scopes[i]; s.Limit > 0 && s.Used >= s.Limit {
			return true
		}
	}
	return false
}

// full returns reason for the first scope of the given kind, and of the given
// kind of owner, that has no place left.
func full(scopes []policy.Scope, owner string, kind policy.ScopeKind, reason policy.Reason) policy.Why {
	for i := range scopes {
		s := &scopes[i]
		if s.Kind == kind && s.Limit > 0 && s.Used >= s.Limit && strings.HasPrefix(s.ID, owner) {
			return policy.Why{Reason: reason, Observed: float64(s.Used), Limit: float64(s.Limit), Until: s.Resets}
		}
	}
	return policy.Why{}
}

func fullRate(scopes []policy.Scope) policy.Why {
	if why := full(scopes, "", policy.ScopeRequests, policy.ReasonRate); why.Reason != "" {
		return why
	}
	return full(scopes, "", policy.ScopeTokens, policy.ReasonRate)
}

func providerConcurrency(_ time.Time, f *Facts) policy.Why {
	return full(f.Candidate.Scopes, "provider:", policy.ScopeConcurrency, policy.ReasonProviderConcurrency)
}

func keyConcurrency(_ time.Time, f *Facts) policy.Why {
	return full(f.Candidate.Scopes, "key:", policy.ScopeConcurrency, policy.ReasonKeyConcurrency)
}

func otherConcurrency(_ time.Time, f *Facts) policy.Why {
	return full(f.Candidate.Scopes, "", policy.ScopeConcurrency, policy.ReasonConcurrency)
}

func keyRequests(_ time.Time, f *Facts) policy.Why {
	return full(f.Candidate.Scopes, "key:", policy.ScopeRequests, policy.ReasonKeyRequests)
}

func keyTokens(_ time.Time, f *Facts) policy.Why {
	return full(f.Candidate.Scopes, "key:", policy.ScopeTokens, policy.ReasonKeyTokens)
}

func otherRate(_ time.Time, f *Facts) policy.Why { return fullRate(f.Candidate.Scopes) }

func providerQuota(now time.Time, f *Facts) policy.Why {
	if f.Provider == nil {
		return policy.Why{}
	}
	return spentQuota(now, f.Provider.Windows, f.QuotaReserve, policy.ReasonProviderQuota)
}

func accountQuota(now time.Time, f *Facts) policy.Why {
	for _, k := range [...]*Known{f.Account, f.Key, f.Model} {
		if k == nil {
			continue
		}
		if why := spentQuota(now, k.Windows, f.QuotaReserve, policy.ReasonAccountQuota); why.Reason != "" {
			return why
		}
		if k.Quota.Ahead(now) {
			return policy.Why{Reason: policy.ReasonAccountQuota, Until: k.Quota.Until}
		}
	}
	return policy.Why{}
}

// spentQuota returns reason for the first quota that is used up but for the
// reserve.
func spentQuota(now time.Time, windows []policy.Window, reserve float64, reason policy.Reason) policy.Why {
	for _, w := range windows {
		if w.Kind == "" && spent(w, reserve) && ahead(now, resets(w)) {
			limit, part := w.Limit, 1-reserve
			if limit == 0 {
				limit = 1
			}
			return policy.Why{Reason: reason, Detail: w.Name, Observed: w.Used * limit, Limit: part * limit, Until: resets(w)}
		}
	}
	return policy.Why{}
}

// ahead reports whether an instant is unknown or has not come.
func ahead(now, t time.Time) bool { return t.IsZero() || now.Before(t) }

// What a refusal is about, as a detail.
const (
	detailAccount = string(policy.SubjectAccount)
	detailKey     = string(policy.SubjectKey)
	detailModel   = string(policy.SubjectModel)
)

func accountInvalid(now time.Time, f *Facts) policy.Why {
	for _, k := range [...]*Known{f.Account, f.Key} {
		if k != nil && k.Account.blocks(now) {
			return badStanding(k.Account)
		}
	}
	refused := [...]struct {
		known  *Known
		detail string
	}{{f.Account, detailAccount}, {f.Key, detailKey}, {f.Model, detailModel}}
	for _, r := range refused {
		if r.known == nil || !r.known.Refused.Open {
			continue
		}
		if why := r.known.Refused.blocks(now, f.Request.ID, policy.ReasonAccountInvalid, r.detail); why.Reason != "" {
			return why
		}
	}
	return policy.Why{}
}

func badStanding(a AccountState) policy.Why {
	why := policy.Why{Reason: policy.ReasonOAuthInvalid, Detail: string(a.Standing), Until: a.Until}
	if a.Standing == StandingBlocked {
		why.Reason = policy.ReasonAccountInvalid
	}
	return why
}

func circuitOpen(now time.Time, f *Facts) policy.Why {
	b := f.circuit()
	if !b.open() {
		return policy.Why{}
	}
	why := b.blocks(now, f.Request.ID, policy.ReasonCircuitOpen, "")
	if why.Reason != "" {
		why.Observed, why.Limit = float64(b.Failures), float64(b.Limit)
	}
	return why
}

func healthZero(_ time.Time, f *Facts) policy.Why {
	if f.Key != nil && f.Key.health(f.Request.Format) <= 0 {
		return policy.Why{Reason: policy.ReasonHealthZero}
	}
	return policy.Why{}
}

func cooldown(now time.Time, f *Facts) policy.Why {
	for _, k := range f.subjects() {
		if k == nil {
			continue
		}
		if k.Cooldown.Ahead(now) {
			return policy.Why{Reason: policy.ReasonCooldown, Until: k.Cooldown.Until}
		}
		for _, w := range k.Windows {
			if w.Kind != "" && spent(w, 0) && now.Before(resets(w)) {
				return policy.Why{Reason: policy.ReasonCooldown, Detail: w.Name, Observed: w.Used * w.Limit, Limit: w.Limit, Until: resets(w)}
			}
		}
	}
	return policy.Why{}
}

func disabled(_ time.Time, f *Facts) policy.Why {
	if f.Candidate.Disabled {
		return policy.Why{Reason: policy.ReasonDisabled}
	}
	return policy.Why{}
}

// learnedRequests comes behind all that rests a key: admission does not know of
// a learned limit and would not wait for it.
func learnedRequests(now time.Time, f *Facts) policy.Why {
	if fixedRequests(f.Candidate.Scopes) {
		return policy.Why{}
	}
	learned := [...]struct {
		known    *Known
		requests int
	}{{f.Key, f.KeyRequests}, {f.Model, f.ModelRequests}}
	for _, l := range learned {
		if l.known == nil {
			continue
		}
		if limit := l.known.Learned.At(now); limit > 0 && l.requests >= limit {
			return policy.Why{
				Reason: policy.ReasonKeyRequests, Detail: detailLearned,
				Observed: float64(l.requests), Limit: float64(limit), Until: now.Add(counterStep),
			}
		}
	}
	return policy.Why{}
}

// fixedRequests reports whether the operator limits the requests of the key.
func fixedRequests(scopes []policy.Scope) bool {
	for i := range scopes {
		if scopes[i].Kind == policy.ScopeRequests && strings.HasPrefix(scopes[i].ID, "key:") {
			return true
		}
	}
	return false
}

// promptTokens returns the size of the prompt that has to fit.
func promptTokens(f *Facts) int64 {
	if f.DoubtEstimate {
		return f.Request.MinInputTokens
	}
	return max(f.Request.InputTokens, f.Request.MinInputTokens)
}

func tooLong(f *Facts) bool {
	return f.Candidate.ContextTokens > 0 && promptTokens(f) > f.Candidate.ContextTokens
}

func contextTooSmall(_ time.Time, f *Facts) policy.Why {
	if !tooLong(f) {
		return policy.Why{}
	}
	return policy.Why{
		Reason:   policy.ReasonContextTooSmall,
		Observed: float64(promptTokens(f)), Limit: float64(f.Candidate.ContextTokens),
	}
}

// probeDue explains why a candidate that may be probed is left to another
// request.
func (f *Facts) probeDue() policy.Why {
	if b := f.circuit(); b.open() {
		return policy.Why{
			Reason: policy.ReasonCircuitOpen, Detail: detailProbeDue,
			Observed: float64(b.Failures), Limit: float64(b.Limit),
		}
	}
	return policy.Why{Reason: policy.ReasonAccountInvalid, Detail: detailProbeDue}
}

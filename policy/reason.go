package policy

import "slices"

// A Reason says in one stable word why a candidate is not eligible or a
// request was turned away. Reasons appear in traces, metrics, logs and error
// bodies, so the set is closed: a policy with a rule of its own says
// [ReasonPolicy] and explains it in [Why.Detail].
type Reason string

// Reasons for which only capacity is missing. A candidate with one of them is
// busy: it may be waited for.
const (
	// ReasonCallerConcurrency: the caller or its group runs as many requests
	// as it may.
	ReasonCallerConcurrency Reason = "caller_concurrency"
	// ReasonProviderConcurrency: the provider runs as many as it may.
	ReasonProviderConcurrency Reason = "provider_concurrency"
	// ReasonKeyConcurrency: the key runs as many as it may.
	ReasonKeyConcurrency Reason = "key_concurrency"
	// ReasonKeyRequests: the key's requests per window are used up.
	ReasonKeyRequests Reason = "key_requests"
	// ReasonKeyTokens: the key's tokens per window are used up.
	ReasonKeyTokens Reason = "key_tokens"
	// ReasonConcurrency: some other scope, such as the model or the fleet,
	// runs as many requests as it may.
	ReasonConcurrency Reason = "concurrency"
	// ReasonRate: some other scope's requests or tokens per window are used up.
	ReasonRate Reason = "rate"
)

// Reasons for which a candidate is skipped.
const (
	// ReasonProviderQuota: the provider's budget is used up.
	ReasonProviderQuota Reason = "provider_quota"
	// ReasonAccountQuota: the account behind the key has used up a plan window.
	ReasonAccountQuota Reason = "account_quota"
	// ReasonAccountInvalid: the key or its account was refused by the provider.
	ReasonAccountInvalid Reason = "account_invalid"
	// ReasonOAuthInvalid: the key's OAuth token is expired or revoked.
	ReasonOAuthInvalid Reason = "oauth_invalid"
	// ReasonCircuitOpen: the breaker is open after repeated failures.
	ReasonCircuitOpen Reason = "circuit_open"
	// ReasonHealthZero: an operator or a policy set the candidate's health to 0.
	ReasonHealthZero Reason = "health_zero"
	// ReasonCooldown: the candidate is left alone until an instant, because
	// the provider asked for it.
	ReasonCooldown Reason = "cooldown"
	// ReasonDisabled: the operator took the key out of service.
	ReasonDisabled Reason = "disabled"
	// ReasonFormat: the provider does not speak the caller's format.
	ReasonFormat Reason = "format"
	// ReasonModel: the key may not serve the model.
	ReasonModel Reason = "model"
	// ReasonCapability: the model lacks something that the request needs.
	ReasonCapability Reason = "capability"
	// ReasonContextTooSmall: the prompt does not fit the context window.
	ReasonContextTooSmall Reason = "context_too_small"
	// ReasonTried: the request has tried this candidate already.
	ReasonTried Reason = "tried"
	// ReasonPolicy: a rule of the policy's own; Detail names it.
	ReasonPolicy Reason = "policy"
	// ReasonNotRanked: the selection policy said nothing of the candidate.
	ReasonNotRanked Reason = "not_ranked"
)

// Reasons for which a request is turned away.
const (
	// ReasonQueueFull: as many requests wait as may wait.
	ReasonQueueFull Reason = "queue_full"
	// ReasonQueueTimeout: the request waited as long as it may.
	ReasonQueueTimeout Reason = "queue_timeout"
	// ReasonStoreUnavailable: the policy's store cannot be reached.
	ReasonStoreUnavailable Reason = "store_unavailable"
	// ReasonPluginUnavailable: the policy's process does not answer.
	ReasonPluginUnavailable Reason = "plugin_unavailable"
	// ReasonNoCandidate: no candidate may serve the request.
	ReasonNoCandidate Reason = "no_candidate"
)

var (
	capacityReasons = []Reason{
		ReasonCallerConcurrency, ReasonProviderConcurrency, ReasonKeyConcurrency,
		ReasonKeyRequests, ReasonKeyTokens, ReasonConcurrency, ReasonRate,
	}
	skipReasons = []Reason{
		ReasonProviderQuota, ReasonAccountQuota, ReasonAccountInvalid, ReasonOAuthInvalid,
		ReasonCircuitOpen, ReasonHealthZero, ReasonCooldown, ReasonDisabled, ReasonFormat, ReasonModel,
		ReasonCapability, ReasonContextTooSmall, ReasonTried, ReasonPolicy, ReasonNotRanked,
	}
	rejectReasons = []Reason{
		ReasonQueueFull, ReasonQueueTimeout, ReasonStoreUnavailable, ReasonPluginUnavailable, ReasonNoCandidate,
	}
)

// Reasons lists all reasons.
func Reasons() []Reason {
	return slices.Concat(capacityReasons, skipReasons, rejectReasons)
}

// Valid reports whether r is one of [Reasons].
func (r Reason) Valid() bool { return slices.Contains(Reasons(), r) }

// Capacity reports whether r says that only capacity is missing.
func (r Reason) Capacity() bool { return slices.Contains(capacityReasons, r) }

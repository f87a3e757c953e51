package policy

import "time"

// A Scope is something with a limit that a request takes a part of: its
// caller, its group, a provider, a key, a model, or the whole fleet.
//
// The limit travels with the request, so a changed limit in the configuration
// holds from the next request on, without telling any policy about it.
type Scope struct {
	// ID names the scope, such as "key:openai/k1". Scopes of equal ID, Kind
	// and Window are the same, on every replica.
	ID string

	// Kind says what is limited.
	Kind ScopeKind

	// Limit is how much may be taken at once (concurrency) or within Window
	// (requests, tokens). It is at least 1: what has no limit is no scope.
	Limit int64

	// Window is the length of a rate limit's window; 0 for concurrency.
	Window time.Duration

	// Used is how much of the scope the host's own requests hold now
	// (concurrency) or took within the last Window, as one replica counts it.
	// It is a hint for ordering and for explaining; the policy that admits
	// must not rely on it.
	Used int64

	// Resets is when the first of what a rate scope counts in Used leaves the
	// window, or the zero time.
	Resets time.Time
}

// A ScopeKind is what a [Scope] limits.
type ScopeKind string

// The kinds of scope. The set is closed.
const (
	// ScopeConcurrency is held while the request runs, and is given back when
	// its lease ends. A request takes 1.
	ScopeConcurrency ScopeKind = "concurrency"

	// ScopeRequests is a number of requests per window. A request takes 1,
	// and it does not come back.
	ScopeRequests ScopeKind = "requests"

	// ScopeTokens is a number of tokens per window. A request reserves
	// [Request.Tokens], and its release settles what it really used.
	ScopeTokens ScopeKind = "tokens"
)

// ScopeKinds lists all kinds of scope.
func ScopeKinds() []ScopeKind {
	return []ScopeKind{ScopeConcurrency, ScopeRequests, ScopeTokens}
}

// Amount returns how much of s the request takes when it is admitted. A
// request for more tokens than the whole limit takes the limit, so that it can
// be served at all, alone.
func (s Scope) Amount(r *Request) int64 {
	if s.Kind == ScopeTokens {
		return min(max(r.Tokens(), 1), s.Limit)
	}
	return 1
}

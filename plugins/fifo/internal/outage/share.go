package outage

import "github.com/usherproxy/usher/policy"

// A share is what one of several replicas takes of each limit. Those of all of them
// add up to the limit.
type share struct {
	replicas int64
	before   int64 // how many of them come before this one
}

// amount returns the share of a limit, which may be 0.
func (s share) amount(limit int64) int64 {
	amount := limit / s.replicas
	if s.before < limit%s.replicas {
		amount++
	}
	return amount
}

// of returns scopes with their shares, and whether there is one of each. Where there
// is none, the limit is 1, for what runs nevertheless.
func (s share) of(scopes []policy.Scope) (shared []policy.Scope, all bool) {
	shared, all = make([]policy.Scope, len(scopes)), true
	for i, scope := range scopes {
		scope.Limit = s.amount(scope.Limit)
		if scope.Limit == 0 {
			scope.Limit, all = 1, false
		}
		shared[i] = scope
	}
	return shared, all
}

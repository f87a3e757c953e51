package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A ScopeStatus is how a scope is.
type ScopeStatus struct {
	Scope  string           `json:"scope"`
	Kind   policy.ScopeKind `json:"kind"`
	Window string           `json:"window,omitempty"`
	Limit  int64            `json:"limit"`

	// Used is what leases hold, or what was taken within the window. Lent, which
	// is part of it, is what replicas hold to admit from without asking.
	Used int64 `json:"used"`
	Lent int64 `json:"lent"`

	// Waiting is how many wait for it.
	Waiting int `json:"waiting"`
}

// Statuses returns how the scopes are that are used or waited for, in the order of
// their names. It changes nothing.
func (q *Queue) Statuses(now time.Time) []ScopeStatus {
	at := now.Sub(q.epoch)
	list := []ScopeStatus{}
	for _, s := range q.scopes {
		status := ScopeStatus{Scope: s.name, Kind: s.kind, Limit: s.limit, Used: s.held + s.lent, Lent: s.lent, Waiting: s.waiting}
		if s.kind != policy.ScopeConcurrency {
			status.Window, status.Used = s.window.span.String(), s.window.peek(at)
		}
		if status.Used > 0 || status.Waiting > 0 {
			list = append(list, status)
		}
	}
	slices.SortFunc(list, func(a, b ScopeStatus) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Window, b.Window))
	})
	return list
}

// peek returns what was taken within the span that ends now.
func (w *window) peek(now time.Duration) int64 {
	sum := w.sum
	for _, t := range w.takes {
		if t.at+w.span > now {
			break
		}
		sum -= t.amount
	}
	return sum
}

// Counts returns how many tickets run and how many wait.
func (q *Queue) Counts() (running, waiting int) {
	for _, t := range q.tickets {
		if t.Running() {
			running++
		} else {
			waiting++
		}
	}
	return running, waiting
}

// Lent returns what each holder was lent, over all scopes.
func (q *Queue) Lent() map[int64]int64 {
	sums := map[int64]int64{}
	for _, s := range q.scopes {
		for _, l := range s.loans {
			sums[l.holder] += l.n
		}
	}
	return sums
}

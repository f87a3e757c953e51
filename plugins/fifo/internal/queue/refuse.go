package queue

import (
	"strings"
	"time"

	"github.com/usherproxy/usher/policy"
)

// Expire ends the wait of a ticket that waited too long, and returns the error
// for it. A ticket that does not wait stays as it is, and there is none.
func (q *Queue) Expire(now time.Time, t *Ticket) ([]*Ticket, error) {
	if t.state != waiting {
		return nil, nil
	}
	err := q.Late(now, t)
	return q.Forget(now, t), err
}

// Late returns the error for a ticket that waits too long.
func (q *Queue) Late(now time.Time, t *Ticket) error {
	return q.rejection(policy.ReasonQueueTimeout, t, t.line.parked, now.Sub(q.epoch))
}

// Busy returns the error for a ticket that waits and may not.
func (q *Queue) Busy(now time.Time, t *Ticket) error {
	return q.rejection(capacityReason(t.line.parked[0]), t, t.line.parked, now.Sub(q.epoch))
}

// full reports whether nobody may join the tickets that wait for scopes.
func full(scopes []*scope, limit int) bool {
	if limit == 0 {
		return false
	}
	for _, s := range scopes {
		if s.waiting < limit {
			return false
		}
	}
	return true
}

// rejection turns t away, which would wait for any of scopes.
func (q *Queue) rejection(reason policy.Reason, t *Ticket, scopes []*scope, now time.Duration) error {
	r := &policy.Rejection{Reason: reason}
	for _, s := range scopes {
		if d := s.retryAfter(t, now); r.RetryAfter == 0 || d < r.RetryAfter {
			r.RetryAfter = d
		}
	}
	return r
}

// retryAfter returns when t should try again to get s, or 0 if that cannot be
// told: when those who wait will have been served or refused, and the window
// has room.
func (s *scope) retryAfter(t *Ticket, now time.Duration) time.Duration {
	var d time.Duration
	if s.waiting > 0 {
		d = t.rules.MaxWait
		if served, ok := s.pace.estimate(now, s.waiting); ok && (d == 0 || served < d) {
			d = max(served, time.Millisecond)
		}
	}
	if s.kind == policy.ScopeConcurrency {
		return d
	}
	if at, ok := s.roomAt(t, now); ok {
		d = max(d, at-now)
	}
	return d
}

// capacityReason returns the word for a request that s has no room for.
func capacityReason(s *scope) policy.Reason {
	of, _, _ := strings.Cut(s.name, ":")
	switch s.kind {
	case policy.ScopeConcurrency:
		switch of {
		case "caller", "group":
			return policy.ReasonCallerConcurrency
		case "provider":
			return policy.ReasonProviderConcurrency
		case "key":
			return policy.ReasonKeyConcurrency
		}
		return policy.ReasonConcurrency
	case policy.ScopeRequests:
		if of == "key" {
			return policy.ReasonKeyRequests
		}
	case policy.ScopeTokens:
		if of == "key" {
			return policy.ReasonKeyTokens
		}
	}
	return policy.ReasonRate
}

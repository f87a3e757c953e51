package queue

import (
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A scope is what the queue knows of something with a limit.
type scope struct {
	id    uint64 // never used again
	name  string
	kind  policy.ScopeKind
	limit int64
	seen  int64 // the arrival that brought limit

	held   int64  // by leases, if it is a concurrency scope
	lent   int64  // to those who let requests start by themselves: the sum of loans
	loans  []loan // in the order of their holders
	window window // what was taken, if it is a rate scope

	lines   sorted[*line] // those that wait for the scope
	waiting int           // tickets in lines
	pace    pace
	kept    sorted[*Ticket] // for the first of whom room is kept

	refs    int  // leases and lines that use the scope
	needed  int  // lines whose tickets may need it
	touched bool // it is in Queue.touched

	recalled bool // it is in Queue.recalled
	alarm    alarm
}

// used returns how much of s is taken now.
func (s *scope) used(now time.Duration) int64 {
	if s.kind == policy.ScopeConcurrency {
		return s.held + s.lent
	}
	s.window.advance(now)
	return s.window.sum
}

// spare returns how much of s may be taken before t fits no more: the limit
// without what t itself takes and what is kept for another.
func (s *scope) spare(t *Ticket) int64 {
	spare := s.limit - t.amount(s)
	if len(s.kept) > 0 && s.kept[0].before(t) {
		spare -= s.kept[0].amount(s)
	}
	return spare
}

// fits reports whether s has room for t.
func (s *scope) fits(t *Ticket, now time.Duration) bool { return s.used(now) <= s.spare(t) }

// open reports whether s has room for t and no earlier ticket waits for it.
func (s *scope) open(t *Ticket, now time.Duration) bool {
	return s.fits(t, now) && (len(s.lines) == 0 || !s.lines[0].first().before(t))
}

// hold takes what t needs.
func (s *scope) hold(t *Ticket, now time.Duration) {
	if slices.ContainsFunc(t.holds, func(h hold) bool { return h.scope == s }) {
		return
	}
	h := hold{scope: s, amount: t.amount(s)}
	if s.kind == policy.ScopeConcurrency {
		s.held += h.amount
	} else {
		h.take = s.window.take(now, h.amount)
	}
	s.refs++
	t.holds = append(t.holds, h)
}

// release gives back what h holds. Usage is nil if it is not known.
func (s *scope) release(h hold, now time.Duration, usage *policy.Usage) {
	s.refs--
	switch {
	case s.kind == policy.ScopeConcurrency:
		s.held -= h.amount
	case s.kind == policy.ScopeTokens && usage != nil:
		s.window.advance(now)
		s.window.settle(h.take, usage.Total()-h.amount)
	}
}

// undo gives back what h holds, for a lease that nobody ever used.
func (s *scope) undo(h hold, now time.Duration) {
	s.refs--
	if s.kind == policy.ScopeConcurrency {
		s.held -= h.amount
		return
	}
	s.window.advance(now)
	s.window.settle(h.take, -h.amount)
}

// count counts n more tickets that wait for s.
func (s *scope) count(n int, now time.Duration) {
	if s.waiting == 0 {
		s.pace.resume(now)
	}
	s.waiting += n
	if s.waiting == 0 {
		s.pace.pause(now)
	}
}

// idle reports whether nothing would be lost if s were forgotten.
func (s *scope) idle(now time.Duration) bool {
	return s.refs == 0 && s.used(now) == 0 && len(s.window.takes) == 0
}

// firstClosed returns the first of scopes that is not open to t, or nil.
func firstClosed(scopes []*scope, t *Ticket, now time.Duration) *scope {
	for _, s := range scopes {
		if !s.open(t, now) {
			return s
		}
	}
	return nil
}

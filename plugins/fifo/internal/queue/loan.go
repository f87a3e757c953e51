package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A Loan is a part of a concurrency scope that a holder was lent, to let requests
// start on it by itself. For everybody else it counts as taken.
type Loan struct {
	Scope string // its ID
	N     int64
}

// A loan is what one holder has of a scope.
type loan struct {
	holder int64
	n      int64

	// answered is set once the holder, asked to return what it does not use, has
	// said that it uses all that is left. It stays so as long as anybody waits.
	answered bool
}

// Holds returns the IDs of the scopes that t holds, or nil if it is not a lease or
// holds any that cannot be lent.
func (t *Ticket) Holds() []string {
	var ids []string
	for _, h := range t.holds {
		if !h.scope.lendable() {
			return nil
		}
		ids = append(ids, h.scope.name)
	}
	return ids
}

// Lend lends to holder one of each of the concurrency scopes of those IDs, which
// are different, if all have room and nobody waits who may need any. It reports
// whether it did.
func (q *Queue) Lend(holder int64, ids []string) bool {
	scopes := make([]*scope, len(ids))
	for i, id := range ids {
		s, ok := q.scopes[scopeKey{id: id, kind: policy.ScopeConcurrency}]
		if !ok || s.claimed() || s.held+s.lent >= s.limit {
			return false
		}
		scopes[i] = s
	}
	for _, s := range scopes {
		s.lend(holder, 1)
	}
	return len(scopes) > 0
}

// Return takes back a part of what holder was lent, which may be nothing: it says
// that holder uses the rest of it.
func (q *Queue) Return(now time.Time, holder int64, loans []Loan) []*Ticket {
	at := q.begin(now)
	for _, l := range loans {
		if s, ok := q.scopes[scopeKey{id: l.Scope, kind: policy.ScopeConcurrency}]; ok {
			s.lend(holder, -l.N)
			s.answer(holder)
			q.touch(s)
		}
	}
	return q.settle(at)
}

// ReturnAll takes back all that holder was lent.
func (q *Queue) ReturnAll(now time.Time, holder int64) []*Ticket {
	at := q.begin(now)
	var lent []*scope
	for _, s := range q.scopes {
		if s.lentTo(holder) > 0 {
			lent = append(lent, s)
		}
	}
	slices.SortFunc(lent, func(a, b *scope) int { return cmp.Compare(a.id, b.id) })
	for _, s := range lent {
		s.lend(holder, -s.lentTo(holder))
		q.touch(s)
	}
	return q.settle(at)
}

// Spare reports whether a holder may still let a request start on what it was
// lent of the scope: its limit is the one that the request brings, and nobody
// waits who may need it.
func (q *Queue) Spare(spec *policy.Scope) bool {
	s, ok := q.scopes[scopeKey{spec.ID, spec.Kind, spec.Window}]
	return ok && s.limit == spec.Limit && !s.claimed()
}

// Quiet reports whether nobody who waits may need the concurrency scope of that ID,
// and nobody has waited for it since the given instant.
func (q *Queue) Quiet(id string, since time.Time) bool {
	s, ok := q.scopes[scopeKey{id: id, kind: policy.ScopeConcurrency}]
	return ok && !s.claimed() && (s.pace.paused == 0 || s.pace.paused < since.Sub(q.epoch))
}

// Claimed reports whether what is lent of the concurrency scope of that ID, and
// not in use, is to be returned.
func (q *Queue) Claimed(id string) bool {
	s, ok := q.scopes[scopeKey{id: id, kind: policy.ScopeConcurrency}]
	return !ok || s.claimed()
}

// Recalled calls f with each scope of which loans are to be returned because of
// what was done since the last call, and with each holder who has to.
func (q *Queue) Recalled(f func(scope string, holder int64)) {
	for _, s := range q.recalled {
		s.recalled = false
		for _, l := range s.loans {
			if !l.answered {
				f(s.name, l.holder)
			}
		}
	}
	clear(q.recalled)
	q.recalled = q.recalled[:0]
}

// Settled reports whether those who have been lent what t waits for, other than
// holder, have said that they use it.
func (q *Queue) Settled(t *Ticket, holder int64) bool { return !lentToOthers(t.line.parked, holder) }

// Binding reports whether nobody but holder will start on what he was lent of
// anything that t, which waits, may need.
func (q *Queue) Binding(t *Ticket, holder int64) bool { return !lentToOthers(t.line.scopes, holder) }

func lentToOthers(scopes []*scope, holder int64) bool {
	return slices.ContainsFunc(scopes, func(s *scope) bool {
		return slices.ContainsFunc(s.loans, func(l loan) bool { return l.holder != holder && !l.answered })
	})
}

// claimed reports whether nobody may start on what is lent of s: somebody waits
// who may need it, or the limit was lowered.
func (s *scope) claimed() bool { return s.needed > 0 || s.held+s.lent > s.limit }

func (s *scope) lendable() bool { return s.kind == policy.ScopeConcurrency && s.window.span == 0 }

// lend lends n more to holder, or less if n is negative.
func (s *scope) lend(holder, n int64) {
	i, ok := s.loanOf(holder)
	if !ok {
		s.loans = slices.Insert(s.loans, i, loan{holder: holder})
	}
	l := &s.loans[i]
	n = max(n, -l.n)
	l.n += n
	s.lent += n
	if l.n == 0 {
		s.loans = slices.Delete(s.loans, i, i+1)
	}
}

func (s *scope) lentTo(holder int64) int64 {
	if i, ok := s.loanOf(holder); ok {
		return s.loans[i].n
	}
	return 0
}

func (s *scope) loanOf(holder int64) (int, bool) {
	return slices.BinarySearchFunc(s.loans, holder, func(l loan, holder int64) int { return cmp.Compare(l.holder, holder) })
}

// answer notes that holder uses what it has left of s, while somebody waits who
// may need it.
func (s *scope) answer(holder int64) {
	if i, ok := s.loanOf(holder); ok {
		s.loans[i].answered = s.needed > 0
	}
}

// calm notes that perhaps nobody waits any more who may need s.
func (q *Queue) calm(s *scope) {
	if s.needed == 0 && len(s.loans) > 0 {
		q.calmed = append(q.calmed, s)
	}
}

// ask forgets the answers of holders about scopes that nobody needs who waits.
func (q *Queue) ask() {
	for _, s := range q.calmed {
		for i := range s.loans {
			s.loans[i].answered = s.loans[i].answered && s.needed > 0
		}
	}
	clear(q.calmed)
	q.calmed = q.calmed[:0]
}

// recall asks for what is lent of s and not in use.
func (q *Queue) recall(s *scope) {
	if !s.recalled && slices.ContainsFunc(s.loans, func(l loan) bool { return !l.answered }) {
		s.recalled = true
		q.recalled = append(q.recalled, s)
	}
}

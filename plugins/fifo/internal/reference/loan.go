package reference

import (
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A loan is what a holder has of a concurrency scope. Each is there once.
type loan struct {
	key      key
	holder   int64
	n        int64
	answered bool
}

// Lend lends one of each of the concurrency scopes to holder if all have room and
// nobody waits who may need any of them. It reports whether it did.
func (m *Model) Lend(now time.Time, holder int64, ids []string) bool {
	for _, id := range ids {
		k := loanKey(id)
		if m.limits[k].n == 0 || m.needed(k) || m.used(now, k) >= m.limits[k].n {
			return false
		}
	}
	for _, id := range ids {
		l := m.loan(loanKey(id), holder)
		l.n++
		l.answered = false
	}
	return len(ids) > 0
}

// Return takes back n of what holder was lent of a scope. Any n says that holder
// uses the rest.
func (m *Model) Return(holder int64, id string, n int64) {
	l := m.loan(loanKey(id), holder)
	l.n -= min(n, l.n)
	l.answered = m.needed(l.key)
}

// ReturnAll takes back all that holder was lent.
func (m *Model) ReturnAll(now time.Time, holder int64) {
	m.loans = slices.DeleteFunc(m.loans, func(l *loan) bool { return l.holder == holder })
	m.Settle(now)
}

// Lent returns what holder was lent of a scope and has not returned.
func (m *Model) Lent(holder int64, id string) int64 { return m.loan(loanKey(id), holder).n }

// Claimed reports whether somebody waits who may need the scope, or more of it is
// used than the limit allows.
func (m *Model) Claimed(now time.Time, id string) bool {
	k := loanKey(id)
	return m.needed(k) || m.used(now, k) > m.limits[k].n
}

// needed reports whether anybody who waits may need k.
func (m *Model) needed(k key) bool {
	return slices.ContainsFunc(m.Waiting, func(e *Entry) bool { return slices.Contains(e.uses(), k) })
}

// Settled reports whether everybody but holder uses all that they were lent of
// what e waits for.
func (m *Model) Settled(e *Entry, holder int64) bool {
	return !m.lentToOthers(m.kinds[e.kind()], holder)
}

func (m *Model) lentToOthers(keys []key, holder int64) bool {
	return slices.ContainsFunc(m.loans, func(l *loan) bool {
		return l.n > 0 && l.holder != holder && !l.answered && slices.Contains(keys, l.key)
	})
}

// calm forgets the answers of holders about scopes that nobody needs who waits.
func (m *Model) calm() {
	for _, l := range m.loans {
		l.answered = l.answered && m.needed(l.key)
	}
}

func (m *Model) loan(k key, holder int64) *loan {
	i := slices.IndexFunc(m.loans, func(l *loan) bool { return l.key == k && l.holder == holder })
	if i < 0 {
		i = len(m.loans)
		m.loans = append(m.loans, &loan{key: k, holder: holder})
	}
	return m.loans[i]
}

func loanKey(id string) key { return key{id: id, kind: policy.ScopeConcurrency} }

// Scopes returns the IDs of the concurrency scopes that m knows of.
func (m *Model) Scopes() []string {
	var ids []string
	for k := range m.limits {
		if k == loanKey(k.id) {
			ids = append(ids, k.id)
		}
	}
	return ids
}

// Loans calls f with everything that is lent.
func (m *Model) Loans(f func(holder int64, scope string, n int64)) {
	for _, l := range m.loans {
		if l.n > 0 {
			f(l.holder, l.key.id, l.n)
		}
	}
}

// Holds returns the scopes that e, which runs, holds, some perhaps more than once.
func (e *Entry) Holds() []policy.Scope {
	return slices.Concat(e.Request.Scopes, e.candidates[e.Candidate].Scopes)
}

// Waits returns the concurrency scopes that nobody who comes after e, which waits, may
// take: those that it waits for, and those that have no more room than is kept for
// it. Some are there more than once.
func (m *Model) Waits(now time.Time, e *Entry) (ids []string) {
	kept := slices.DeleteFunc(e.keeps(), func(k key) bool {
		return m.keeper(k) != e || m.used(now, k)+m.amount(e, k) <= m.limits[k].n
	})
	for _, k := range slices.Concat(m.kinds[e.kind()], kept) {
		if k == loanKey(k.id) {
			ids = append(ids, k.id)
		}
	}
	return ids
}

// Needs returns the scopes that e may hold, some perhaps more than once.
func (e *Entry) Needs() []policy.Scope {
	all := e.Request.Scopes
	for _, c := range e.candidates {
		all = slices.Concat(all, c.Scopes)
	}
	return all
}

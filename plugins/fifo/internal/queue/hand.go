package queue

import (
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// Heir returns who starts when a lease ends that holds concurrency scopes of the
// IDs held, and on which of his candidates, if that is certain as far as the queue
// knows: he is the first of all who wait for any of them, and takes nothing else.
// It returns nil if it is not.
//
// Freed are the IDs of scopes of which something will be free before the lease
// ends, and gone reports whether a ticket will not wait any more then.
func (q *Queue) Heir(held []string, freed func(yield func(id string) bool), gone func(*Ticket) bool) (heir *Ticket, candidate int) {
	scopes := make([]*scope, 0, 8)
	for _, id := range held {
		if s, ok := q.scopes[scopeKey{id: id, kind: policy.ScopeConcurrency}]; ok {
			scopes = append(scopes, s)
			heir = s.firstBut(gone, heir)
		}
	}
	if heir == nil || !within(heir.own, scopes, heir) {
		return nil, 0
	}
	for id := range freed { // who is before him there may come for what he takes
		s, ok := q.scopes[scopeKey{id: id, kind: policy.ScopeConcurrency}]
		if ok && !slices.Contains(scopes, s) && s.firstBut(gone, heir) != heir {
			return nil, 0
		}
	}
	if within(heir.ranked[0], scopes, heir) {
		return heir, 0
	}
	return nil, 0
}

// firstBut returns the first ticket that waits for s and is not gone, or other if
// that is before it.
func (s *scope) firstBut(gone func(*Ticket) bool, other *Ticket) *Ticket {
	for _, l := range s.lines {
		if other != nil && !l.first().before(other) {
			break
		}
		i := slices.IndexFunc(l.tickets, func(t *Ticket) bool { return !gone(t) })
		if i >= 0 && (other == nil || l.tickets[i].before(other)) {
			other = l.tickets[i]
		}
	}
	return other
}

// within reports whether list is a part of held, and has room for t once one of
// each of held is free.
func within(list, held []*scope, t *Ticket) bool {
	for _, s := range list {
		if !slices.Contains(held, s) || s.held+s.lent-1 > s.spare(t) {
			return false
		}
	}
	return true
}

// Hand ends a lease, as Release does, and gives what it holds to heir, who takes
// nothing else on that candidate. He may run already, perhaps on another one, since
// his queue knew of it first: what he held then is free.
func (q *Queue) Hand(now time.Time, t *Ticket, usage *policy.Usage, heir *Ticket, candidate int) []*Ticket {
	at := q.begin(now)
	if t.state != running || heir.state == ended {
		return q.settle(at)
	}
	q.end(t)
	q.release(t, at, usage)
	switch {
	case heir.state == waiting:
		for _, s := range heir.line.parked {
			s.pace.serve(at)
		}
		q.leave(heir, at)
		q.unkeep(heir)
		q.grant(heir, candidate, at)
	case heir.candidate != candidate:
		q.release(heir, at, nil)
		q.resolveAll(heir)
		q.grant(heir, candidate, at)
	}
	return q.settle(at)
}

package queue

import (
	"fmt"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// Restore takes over what another queue left: requests that run get a lease,
// even beyond a limit, and requests that wait get their place, even in a full
// queue, or a lease if there is room. It returns the tickets of both, in the
// order of its arguments. If there is an error, nothing has changed.
//
// They may have the names of replaced tickets, which end, as Forget ends them.
func (q *Queue) Restore(now time.Time, run []policy.Held, wait []policy.AdmitRequest, rules Rules, replaced ...*Ticket) (runs, waits, granted []*Ticket, err error) {
	at := q.begin(now)
	rules.QueueLimit = 0
	for _, h := range run {
		runs = append(runs, q.ticket(h.Request, h.Attempt, []policy.Candidate{h.Candidate}, rules))
	}
	for _, w := range wait {
		waits = append(waits, q.ticket(w.Request, w.Attempt, w.Candidates, rules))
	}
	if err := q.restorable(slices.Concat(runs, waits), replaced); err != nil {
		return nil, nil, nil, err
	}
	for _, t := range replaced {
		q.drop(t, at)
	}
	for _, t := range runs {
		q.tickets[t.name()] = t
		q.resolveAll(t)
		q.grant(t, 0, at)
	}
	for _, t := range slices.SortedStableFunc(slices.Values(waits), compare) {
		q.tickets[t.name()] = t
		_ = q.admit(t, at, 0, false) // cannot fail: it has candidates, may wait, and the queue has no limit
	}
	return runs, waits, q.settle(at), nil
}

// restorable reports whether none of tickets is in use, nor impossible to serve.
func (q *Queue) restorable(tickets, replaced []*Ticket) error {
	seen := make(map[name]bool, len(tickets))
	for _, t := range tickets {
		switch {
		case seen[t.name()] || q.tickets[t.name()] != nil && !slices.Contains(replaced, q.tickets[t.name()]):
			return inUse(t)
		case len(t.candidates) == 0:
			return fmt.Errorf("ticket %s, attempt %d, has no candidate", t.request.ID, t.attempt)
		}
		seen[t.name()] = true
	}
	return nil
}

// Resume gives a lease to a request that ran until its lease was ended without its
// doing, if all concurrency scopes have room for it. What it took of windows is
// there still.
func (q *Queue) Resume(now time.Time, held policy.Held, rules Rules) (*Ticket, []*Ticket, error) {
	at := q.begin(now)
	t := q.ticket(held.Request, held.Attempt, []policy.Candidate{held.Candidate}, rules)
	if q.tickets[t.name()] != nil {
		return nil, nil, inUse(t)
	}
	q.resolveAll(t)
	q.settle(at)
	t.own, t.ranked = concurrent(t.own), [][]*scope{concurrent(t.ranked[0])}
	for _, s := range slices.Concat(t.own, t.ranked[0]) {
		if s.used(at)+t.amount(s) > s.limit {
			return nil, q.granted, q.rejection(capacityReason(s), t, []*scope{s}, at)
		}
	}
	q.tickets[t.name()] = t
	q.grant(t, 0, at)
	return t, q.granted, nil
}

// concurrent returns those of scopes that are no rates.
func concurrent(scopes []*scope) (list []*scope) {
	for _, s := range scopes {
		if s.kind == policy.ScopeConcurrency {
			list = append(list, s)
		}
	}
	return list
}

package queue

import (
	"container/heap"
	"fmt"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A Queue holds the tickets that run and those that wait. It is not safe for
// concurrent use. The instants that its methods are told must not go backwards.
type Queue struct {
	epoch   time.Time
	scopes  map[scopeKey]*scope
	lines   map[string]*line
	tickets map[name]*Ticket
	alarms  alarms

	serial, scopeSerial uint64
	sweepAt             int

	waiting int // tickets

	touched []*scope // scopes that may have got room, or lost a line
	granted []*Ticket

	recalled []*scope // what is lent of them is to be returned
	calmed   []*scope // perhaps nobody waits any more who may need them

	// Scratch space, to decide on tickets that never wait without allocating.
	own      []*scope
	ranked   [][]*scope
	blockers []*scope
}

// New returns an empty queue.
func New(now time.Time) *Queue {
	return &Queue{
		epoch:   now,
		scopes:  make(map[scopeKey]*scope),
		lines:   make(map[string]*line),
		tickets: make(map[name]*Ticket),
		sweepAt: minScopes,
	}
}

// Admit decides on a request: its ticket runs, or waits, or there is an error.
// That is a [*policy.Rejection] unless the same ticket waits or runs already.
//
// Like every method that returns a list of tickets, it returns those that waited
// and run from now on, because of it. The list is valid until the next call. The
// queue keeps req.Request and req.Candidates while the ticket waits or runs.
func (q *Queue) Admit(now time.Time, req *policy.AdmitRequest, rules Rules) (*Ticket, []*Ticket, error) {
	return q.AdmitFor(now, 0, req, rules)
}

// AdmitFor decides, as Admit does, on a request that holder asks for, who has
// returned what it was lent and does not use. If the request may not wait, and
// others may not use all that they were lent, it waits until they have said so,
// see [Queue.Settled].
func (q *Queue) AdmitFor(now time.Time, holder int64, req *policy.AdmitRequest, rules Rules) (*Ticket, []*Ticket, error) {
	at := q.begin(now)
	t := q.ticket(req.Request, req.Attempt, req.Candidates, rules)
	if q.tickets[t.name()] != nil {
		return nil, nil, inUse(t)
	}
	if err := q.admit(t, at, holder, req.NoWait); err != nil {
		return nil, q.granted, err
	}
	q.tickets[t.name()] = t
	return t, q.granted, nil
}

func (q *Queue) ticket(req *policy.Request, attempt int, candidates []policy.Candidate, rules Rules) *Ticket {
	q.serial++
	return &Ticket{request: req, attempt: attempt, candidates: candidates, rules: rules, serial: q.serial}
}

func inUse(t *Ticket) error {
	return fmt.Errorf("ticket %s, attempt %d, is in use", t.request.ID, t.attempt)
}

// Release ends a lease. Usage is nil if it is not known. A ticket that is no
// lease any more stays as it is.
func (q *Queue) Release(now time.Time, t *Ticket, usage *policy.Usage) []*Ticket {
	at := q.begin(now)
	if t.state == running {
		q.end(t)
		q.release(t, at, usage)
	}
	return q.settle(at)
}

// Forget ends the wait of a ticket, or a lease that nobody ever used, as if it
// had never been. A ticket that has ended stays as it is.
func (q *Queue) Forget(now time.Time, t *Ticket) []*Ticket {
	at := q.begin(now)
	q.drop(t, at)
	return q.settle(at)
}

// drop does what Forget does, and lets nobody start.
func (q *Queue) drop(t *Ticket, now time.Duration) {
	switch t.state {
	case running:
		q.end(t)
		q.undo(t, now)
	case waiting:
		q.end(t)
		q.leave(t, now)
		q.unkeep(t)
	}
}

// Tick lets those start for whom a window has room again.
func (q *Queue) Tick(now time.Time) []*Ticket {
	at := q.begin(now)
	for len(q.alarms) > 0 && q.alarms[0].alarm.at <= at {
		q.touch(heap.Pop(&q.alarms).(*scope))
	}
	return q.settle(at)
}

// Next returns the instant at which Tick is to be called, or false if there is
// none. Every other method may change it.
func (q *Queue) Next() (time.Time, bool) {
	if len(q.alarms) == 0 {
		return time.Time{}, false
	}
	return q.epoch.Add(q.alarms[0].alarm.at), true
}

// Find returns the ticket that waits or runs under the given name, or nil.
func (q *Queue) Find(id string, attempt int) *Ticket { return q.tickets[name{id, attempt}] }

// Waiting returns how many tickets wait.
func (q *Queue) Waiting() int { return q.waiting }

// begin begins a method: it forgets what the one before left.
func (q *Queue) begin(now time.Time) time.Duration {
	clear(q.granted)
	q.granted = q.granted[:0]
	return now.Sub(q.epoch)
}

func (q *Queue) end(t *Ticket) {
	delete(q.tickets, t.name())
	t.state = ended
}

func (q *Queue) release(t *Ticket, now time.Duration, usage *policy.Usage) {
	for _, h := range t.holds {
		h.scope.release(h, now, usage)
		q.touch(h.scope)
	}
	t.holds = nil
}

func (q *Queue) undo(t *Ticket, now time.Duration) {
	for _, h := range t.holds {
		h.scope.undo(h, now)
		q.touch(h.scope)
	}
	t.holds = nil
}

// touch notes that s, if anybody waits for it, may have got room or lost a line.
func (q *Queue) touch(s *scope) {
	if !s.touched && len(s.lines) > 0 {
		s.touched = true
		q.touched = append(q.touched, s)
	}
}

// admit lets t run or wait.
func (q *Queue) admit(t *Ticket, now time.Duration, holder int64, noWait bool) error {
	if len(t.candidates) == 0 {
		return &policy.Rejection{Reason: policy.ReasonNoCandidate}
	}
	q.sweep(now)
	q.resolveAll(t)
	q.settle(now) // those who wait come first where a limit was raised
	candidate, blockers := q.judge(t, now)
	switch {
	case candidate >= 0:
		q.grant(t, candidate, now)
		return nil
	case noWait && !lentToOthers(blockers, holder):
		return q.rejection(capacityReason(blockers[0]), t, blockers, now)
	}
	return q.wait(t, blockers, now)
}

// wait puts t into its line, if the line has a place.
func (q *Queue) wait(t *Ticket, blockers []*scope, now time.Duration) error {
	m := mark(t)
	l := q.lines[m]
	if l != nil && l.first().before(t) {
		blockers = l.parked
	}
	if full(blockers, t.rules.QueueLimit) {
		return q.rejection(policy.ReasonQueueFull, t, blockers, now)
	}
	t.own, t.ranked = slices.Clone(t.own), cloneAll(t.ranked)
	if l == nil {
		l = q.openLine(m, t)
	}
	q.join(t, l, blockers, now)
	q.settle(now)
	return nil
}

package queue

import (
	"encoding/json"
	"fmt"

	"github.com/usherproxy/usher/policy"
)

// Load returns the queue of which data is the snapshot, as JSON.
func Load(data []byte) (*Queue, error) {
	var s Snapshot
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("snapshot of a queue: %w", err)
	}
	l := loader{queue: New(s.Epoch), scopes: map[uint64]*scope{}, tickets: map[uint64]*Ticket{}}
	l.queue.serial, l.queue.scopeSerial, l.queue.sweepAt = s.Serial, s.ScopeSerial, s.SweepAt
	for _, record := range s.Scopes {
		l.scope(record)
	}
	for i, id := range s.Alarms {
		l.scopes[id].alarm.index = i
		l.queue.alarms = append(l.queue.alarms, l.scopes[id])
	}
	for _, record := range s.Tickets {
		l.ticket(record)
	}
	for _, record := range s.Lines {
		l.line(record)
	}
	return l.queue, nil
}

// A loader makes a queue of a snapshot.
type loader struct {
	queue   *Queue
	scopes  map[uint64]*scope
	tickets map[uint64]*Ticket
}

func (l *loader) scope(r scopeSnapshot) {
	s := &scope{
		id: r.Serial, name: r.ID, kind: r.Kind, limit: r.Limit, seen: r.Seen, held: r.Held,
		window: window{span: r.Window, base: r.Base},
		pace:   pace{r.Pace.Served, r.Pace.Busy, r.Pace.Last, r.Pace.Paused},
		alarm:  alarm{at: r.Alarm, index: -1},
	}
	for _, l := range r.Loans {
		s.loans = append(s.loans, loan{l.Holder, l.N, l.Answered})
		s.lent += l.N
	}
	for _, t := range r.Takes {
		s.window.takes = append(s.window.takes, take{t.At, t.Amount})
		s.window.sum += t.Amount
	}
	l.scopes[s.id] = s
	l.queue.scopes[scopeKey{s.name, s.kind, r.Window}] = s
}

func (l *loader) ticket(r ticketSnapshot) {
	req := r.Request()
	t := &Ticket{
		request: req.Request, attempt: r.Attempt, candidates: req.Candidates, rules: Rules(r.Rules), serial: r.Serial,
		candidate: r.Candidate, passes: r.Passes,
	}
	for _, id := range r.Kept {
		t.kept = append(t.kept, l.scopes[id])
		l.scopes[id].kept.insert(t)
	}
	for _, h := range r.Holds {
		t.holds = append(t.holds, hold{l.scopes[h.Scope], h.Amount, h.Take})
		l.scopes[h.Scope].refs++
	}
	t.state = running // line changes that
	l.tickets[t.serial] = t
	l.queue.tickets[t.name()] = t
}

// line puts tickets back into the line in which they wait.
func (l *loader) line(r lineSnapshot) {
	var of *line
	for _, serial := range r.Tickets {
		t := l.tickets[serial]
		t.state = waiting
		l.find(t)
		if of == nil {
			of = l.queue.openLine(mark(t), t)
		}
		t.line = of
		l.queue.waiting++
		of.tickets = append(of.tickets, t)
	}
	for _, id := range r.Parked {
		s := l.scopes[id]
		of.parked = append(of.parked, s)
		s.lines.insert(of)
		s.waiting += len(of.tickets)
	}
}

// find sets the scopes that t needs, all of which are there.
func (l *loader) find(t *Ticket) {
	t.own = l.all(t.request.Scopes)
	for i := range t.candidates {
		t.ranked = append(t.ranked, l.all(t.candidates[i].Scopes))
	}
}

func (l *loader) all(specs []policy.Scope) []*scope {
	scopes := make([]*scope, len(specs))
	for i := range specs {
		scopes[i] = l.queue.scope(&specs[i])
	}
	return scopes
}

package queue

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A Snapshot is all that a queue will ever look at again, as JSON stores it. Two
// queues of which one is loaded from the snapshot of the other decide alike from
// then on. It does not change with its queue.
type Snapshot struct {
	Epoch       time.Time        `json:"epoch"`
	Serial      uint64           `json:"serial"`
	ScopeSerial uint64           `json:"scope_serial"`
	SweepAt     int              `json:"sweep_at"`
	Scopes      []scopeSnapshot  `json:"scopes"`
	Alarms      []uint64         `json:"alarms"` // scopes, as they lie in the heap
	Tickets     []ticketSnapshot `json:"tickets"`
	Lines       []lineSnapshot   `json:"lines"`
}

type scopeSnapshot struct {
	ScopeRecord
	Serial uint64        `json:"serial"`
	Seen   int64         `json:"seen"`
	Held   int64         `json:"held,omitempty"`
	Loans  []loanRecord  `json:"loans,omitempty"`
	Takes  []takeRecord  `json:"takes,omitempty"`
	Base   uint64        `json:"base,omitempty"`
	Alarm  time.Duration `json:"alarm,omitempty"`
	Pace   paceRecord    `json:"pace"`
}

type loanRecord struct {
	Holder   int64 `json:"holder"`
	N        int64 `json:"n"`
	Answered bool  `json:"answered,omitempty"`
}

type takeRecord struct {
	At     time.Duration `json:"at"`
	Amount int64         `json:"amount"`
}

type paceRecord struct {
	Served float64       `json:"served,omitempty"`
	Busy   time.Duration `json:"busy,omitempty"`
	Last   time.Duration `json:"last,omitempty"`
	Paused time.Duration `json:"paused,omitempty"`
}

type ticketSnapshot struct {
	Record
	Serial    uint64         `json:"serial"`
	Candidate int            `json:"candidate,omitempty"`
	Passes    int            `json:"passes,omitempty"`
	Kept      []uint64       `json:"kept,omitempty"`
	Holds     []holdSnapshot `json:"holds,omitempty"`
}

type holdSnapshot struct {
	Scope  uint64 `json:"scope"`
	Amount int64  `json:"amount"`
	Take   uint64 `json:"take,omitempty"`
}

type lineSnapshot struct {
	Parked  []uint64 `json:"parked"`
	Tickets []uint64 `json:"tickets"`
}

// Snapshot returns all of q. Equal queues have equal snapshots, and [Load] takes the
// JSON of one, which takes much longer to make.
func (q *Queue) Snapshot() *Snapshot {
	s := &Snapshot{Epoch: q.epoch, Serial: q.serial, ScopeSerial: q.scopeSerial, SweepAt: q.sweepAt, Alarms: serials(q.alarms)}
	for _, of := range sortedBy(q.scopes, func(s *scope) uint64 { return s.id }) {
		s.Scopes = append(s.Scopes, of.snapshot())
	}
	for _, t := range sortedBy(q.tickets, func(t *Ticket) uint64 { return t.serial }) {
		s.Tickets = append(s.Tickets, t.snapshot())
	}
	for _, l := range sortedBy(q.lines, func(l *line) uint64 { return l.first().serial }) {
		ls := lineSnapshot{Parked: serials(l.parked)}
		for _, t := range l.tickets {
			ls.Tickets = append(ls.Tickets, t.serial)
		}
		s.Lines = append(s.Lines, ls)
	}
	return s
}

func sortedBy[K comparable, V any](m map[K]V, serial func(V) uint64) []V {
	return slices.SortedFunc(maps.Values(m), func(a, b V) int { return cmp.Compare(serial(a), serial(b)) })
}

func serials(scopes []*scope) []uint64 {
	list := make([]uint64, len(scopes))
	for i, s := range scopes {
		list[i] = s.id
	}
	return list
}

func (s *scope) snapshot() scopeSnapshot {
	record := scopeSnapshot{
		ScopeRecord: ScopeRecord{s.name, s.kind, s.limit, s.window.span},
		Serial:      s.id, Seen: s.seen, Held: s.held, Base: s.window.base,
		Pace: paceRecord{s.pace.served, s.pace.busy, s.pace.last, s.pace.paused},
	}
	if s.alarm.index >= 0 {
		record.Alarm = s.alarm.at
	}
	for _, l := range s.loans {
		record.Loans = append(record.Loans, loanRecord{l.holder, l.n, l.answered})
	}
	for _, t := range s.window.takes {
		record.Takes = append(record.Takes, takeRecord{t.at, t.amount})
	}
	return record
}

func (t *Ticket) snapshot() ticketSnapshot {
	record := ticketSnapshot{
		Record: NewRecord(&policy.AdmitRequest{Request: t.request, Attempt: t.attempt, Candidates: t.candidates}, t.rules),
		Serial: t.serial, Candidate: t.candidate, Passes: t.passes, Kept: serials(t.kept),
	}
	for _, h := range t.holds {
		record.Holds = append(record.Holds, holdSnapshot{h.scope.id, h.amount, h.take})
	}
	return record
}

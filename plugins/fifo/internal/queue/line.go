package queue

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// A line is the waiting tickets that need the same scopes.
type line struct {
	mark    string   // the key in Queue.lines
	scopes  []*scope // what its tickets need, perhaps with repetitions
	parked  []*scope // what it waits for
	tickets sorted[*Ticket]
}

// first returns the first ticket of the line, which is never empty while it
// waits.
func (l *line) first() *Ticket { return l.tickets[0] }

// mark returns what the tickets of one line have in common: the scopes of the
// request, and those of its candidates in any order.
func mark(t *Ticket) string {
	sets := make([]string, len(t.ranked))
	for i, scopes := range t.ranked {
		sets[i] = encode(scopes)
	}
	slices.Sort(sets)
	sets = slices.Compact(sets)
	return string(t.rules.Order) + encode(t.own) + strings.Join(sets, "")
}

// encode returns the identities of scopes, in any order, as a string that begins
// with its length.
func encode(scopes []*scope) string {
	ids := make([]uint64, len(scopes))
	for i, s := range scopes {
		ids[i] = s.id
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	b := binary.AppendUvarint(make([]byte, 0, 1+9*len(ids)), uint64(len(ids)))
	for _, id := range ids {
		b = binary.AppendUvarint(b, id)
	}
	return string(b)
}

// join puts t into its line, where it cannot start. As the first of the line it
// moves the line to blockers, which is what it waits for itself.
func (q *Queue) join(t *Ticket, l *line, blockers []*scope, now time.Duration) {
	t.line = l
	q.waiting++
	if len(l.tickets) > 0 && l.first().before(t) {
		l.tickets.insert(t)
		for _, s := range l.parked {
			s.count(1, now)
		}
		return
	}
	q.unpark(l, now)
	l.tickets.insert(t)
	q.park(l, blockers, now)
}

// leave takes t out of its line. The line stays where it waits, and is looked at
// again if t was its first.
func (q *Queue) leave(t *Ticket, now time.Duration) {
	l := t.line
	t.line = nil
	q.waiting--
	first := l.first() == t
	for _, s := range l.parked {
		if first {
			s.lines.remove(l)
		}
		s.count(-1, now)
	}
	l.tickets.remove(t)
	if !first {
		return
	}
	for _, s := range l.parked {
		if len(l.tickets) > 0 {
			s.lines.insert(l)
		}
		q.touch(s)
	}
	if len(l.tickets) == 0 {
		q.closeLine(l)
	}
}

// closeLine forgets a line that has no ticket any more.
func (q *Queue) closeLine(l *line) {
	delete(q.lines, l.mark)
	for _, s := range l.scopes {
		s.refs--
		s.needed--
		q.calm(s)
	}
}

// park lets l wait for scopes.
func (q *Queue) park(l *line, scopes []*scope, now time.Duration) {
	l.parked = append(l.parked[:0], scopes...)
	for _, s := range scopes {
		s.count(len(l.tickets), now)
		s.lines.insert(l)
		q.arm(s, now)
	}
}

// unpark ends the wait of l. Those behind it may be able to start.
func (q *Queue) unpark(l *line, now time.Duration) {
	for _, s := range l.parked {
		s.count(-len(l.tickets), now)
		s.lines.remove(l)
		q.touch(s)
	}
	l.parked = l.parked[:0]
}

// openLine opens a line for the tickets of mark m, of which t is the first.
func (q *Queue) openLine(m string, t *Ticket) *line {
	l := &line{mark: m, scopes: slices.Concat(slices.Concat(t.ranked...), t.own)}
	q.lines[m] = l
	for _, s := range l.scopes {
		s.refs++
		s.needed++
		q.recall(s)
	}
	return l
}

package queue

import "slices"

// Position returns the place of a waiting ticket among those that wait for the
// same scope, from 1. Of several scopes it is the first. It costs as much as
// there are lines that wait for the scope.
func (q *Queue) Position(t *Ticket) int {
	position := 1
	for _, l := range t.line.parked[0].lines {
		if !l.first().before(t) {
			break
		}
		position += l.tickets.rank(t)
	}
	return position
}

// Positions calls f with each waiting ticket and its position.
func (q *Queue) Positions(f func(t *Ticket, position int)) {
	seen := make(map[*scope]bool)
	for _, l := range q.lines {
		if s := l.parked[0]; !seen[s] {
			seen[s] = true
			s.positions(f)
		}
	}
}

// positions does so for the tickets whose first scope is s.
func (s *scope) positions(f func(t *Ticket, position int)) {
	all := make([]*Ticket, 0, s.waiting)
	for _, l := range s.lines {
		all = append(all, l.tickets...)
	}
	slices.SortFunc(all, compare) // cheap for a single line, which is in order
	for i, t := range all {
		if t.line.parked[0] == s {
			f(t, i+1)
		}
	}
}

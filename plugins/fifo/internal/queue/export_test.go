package queue

import "time"

// Leftovers counts what a queue holds.
type Leftovers struct{ Tickets, Lines, Alarms, Scopes, Touched int }

// Left counts what q holds now, without idle scopes.
func (q *Queue) Left(now time.Time) Leftovers {
	l := Leftovers{Tickets: len(q.tickets), Lines: len(q.lines), Alarms: len(q.alarms), Touched: len(q.touched)}
	for _, s := range q.scopes {
		if !s.idle(now.Sub(q.epoch)) || s.waiting != 0 || len(s.lines) != 0 || len(s.kept) != 0 || s.held != 0 {
			l.Scopes++
		}
	}
	return l
}

// Scopes returns how many scopes q knows of.
func (q *Queue) Scopes() int { return len(q.scopes) }

// Takes returns how many takes the windows of q remember.
func (q *Queue) Takes() int {
	var n int
	for _, s := range q.scopes {
		n += len(s.window.takes)
	}
	return n
}

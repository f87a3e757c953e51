package queue

import (
	"slices"
	"time"
)

// judge returns the candidate on which t can start, or -1 and the scopes that it
// waits for. The list is valid until the next call.
func (q *Queue) judge(t *Ticket, now time.Duration) (candidate int, blockers []*scope) {
	own := firstClosed(t.own, t, now)
	q.blockers = q.blockers[:0]
	for i, scopes := range t.ranked {
		s := own
		if s == nil {
			s = firstClosed(scopes, t, now)
		}
		if s == nil {
			return i, nil
		}
		q.block(s)
	}
	if t.rules.Order == OrderStrict {
		q.block(t.own...)
		for _, scopes := range t.ranked {
			q.block(scopes...)
		}
	}
	return -1, q.blockers
}

// block adds scopes to q.blockers, each once.
func (q *Queue) block(scopes ...*scope) {
	for _, s := range scopes {
		if !slices.Contains(q.blockers, s) {
			q.blockers = append(q.blockers, s)
		}
	}
}

// grant gives t its lease.
func (q *Queue) grant(t *Ticket, candidate int, now time.Duration) {
	t.state, t.candidate = running, candidate
	t.holds = t.inline[:0]
	for _, s := range t.own {
		s.hold(t, now)
	}
	for _, s := range t.ranked[candidate] {
		s.hold(t, now)
	}
	for _, h := range t.holds {
		q.arm(h.scope, now)
	}
	t.own, t.ranked = nil, nil
}

// settle lets those start who can. It looks at the lines whose scope has room
// for their first ticket, earliest first.
func (q *Queue) settle(now time.Duration) []*Ticket {
	for {
		l, s := q.nextOpen(now)
		if l == nil {
			q.ask()
			return q.granted
		}
		if !q.try(l, now) {
			q.untouch(s)
		}
	}
}

// nextOpen returns the line with the earliest first ticket among those that wait
// for a touched scope which has room for it, and that scope.
func (q *Queue) nextOpen(now time.Duration) (first *line, of *scope) {
	for i := 0; i < len(q.touched); {
		s := q.touched[i]
		if len(s.lines) == 0 || !s.fits(s.lines[0].first(), now) {
			q.touched[i] = q.touched[len(q.touched)-1]
			q.touched = q.touched[:len(q.touched)-1]
			s.touched = false
			q.arm(s, now)
			continue
		}
		if l := s.lines[0]; first == nil || l.first().before(first.first()) {
			first, of = l, s
		}
		i++
	}
	return first, of
}

// untouch drops s from the touched scopes: its first line stays where it is.
func (q *Queue) untouch(s *scope) {
	s.touched = false
	i := slices.Index(q.touched, s)
	q.touched = slices.Delete(q.touched, i, i+1)
}

// try lets the first ticket of l start, or moves l to where it waits from now
// on. It reports whether it did one of them.
func (q *Queue) try(l *line, now time.Duration) bool {
	t := l.first()
	candidate, blockers := q.judge(t, now)
	if candidate >= 0 {
		for _, s := range l.parked {
			s.pace.serve(now)
		}
		q.leave(t, now)
		q.unkeep(t)
		q.grant(t, candidate, now)
		q.granted = append(q.granted, t)
		return true
	}
	if t.rules.Order == OrderStrict {
		return false
	}
	q.unpark(l, now)
	q.park(l, blockers, now)
	q.pass(t)
	return true
}

// pass notes that the turn of t came in vain. If that happened too often, room
// is kept for it, once it is the earliest of all for whom that is so.
func (q *Queue) pass(t *Ticket) {
	t.passes++
	if t.passes != t.rules.MaxPasses {
		return
	}
	for _, scopes := range [][]*scope{t.own, t.ranked[0]} {
		for _, s := range scopes {
			if !slices.Contains(t.kept, s) {
				t.kept = append(t.kept, s)
				s.kept.insert(t)
				q.touch(s)
			}
		}
	}
}

// unkeep ends what pass began.
func (q *Queue) unkeep(t *Ticket) {
	for _, s := range t.kept {
		s.kept.remove(t)
		q.touch(s)
	}
	t.kept = nil
}

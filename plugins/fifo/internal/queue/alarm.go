package queue

import (
	"container/heap"
	"time"

	"github.com/usherproxy/usher/policy"
)

// An alarm is the instant at which a rate scope has room for the first ticket
// that waits for it.
type alarm struct {
	at    time.Duration
	index int // in Queue.alarms, or -1
}

// arm sets the alarm of s, or clears it.
func (q *Queue) arm(s *scope, now time.Duration) {
	if s.kind == policy.ScopeConcurrency {
		return
	}
	at, ok := s.next(now)
	switch {
	case !ok && s.alarm.index >= 0:
		heap.Remove(&q.alarms, s.alarm.index)
	case ok && s.alarm.index >= 0:
		s.alarm.at = at
		heap.Fix(&q.alarms, s.alarm.index)
	case ok:
		s.alarm.at = at
		heap.Push(&q.alarms, s)
	}
}

// next returns when the rate scope s has room for the first ticket that waits
// for it, if time alone brings that about.
func (s *scope) next(now time.Duration) (time.Duration, bool) {
	if len(s.lines) == 0 {
		return 0, false
	}
	return s.roomAt(s.lines[0].first(), now)
}

// roomAt returns when the rate scope s has room for t, if it has none now and
// time alone brings that about.
func (s *scope) roomAt(t *Ticket, now time.Duration) (time.Duration, bool) {
	spare := s.spare(t)
	if s.used(now) <= spare {
		return 0, false
	}
	return s.window.when(spare)
}

// alarms is a heap of the scopes whose alarm is set.
type alarms []*scope

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].alarm.at < a[j].alarm.at }

func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].alarm.index, a[j].alarm.index = i, j
}

func (a *alarms) Push(x any) {
	s := x.(*scope)
	s.alarm.index = len(*a)
	*a = append(*a, s)
}

func (a *alarms) Pop() any {
	last := len(*a) - 1
	s := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	s.alarm.index = -1
	return s
}

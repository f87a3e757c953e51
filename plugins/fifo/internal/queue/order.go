package queue

import (
	"cmp"
	"slices"
)

// compare orders tickets: priority, arrival, and the order in which the queue
// got them.
func compare(a, b *Ticket) int {
	return cmp.Or(
		cmp.Compare(b.request.Priority, a.request.Priority),
		cmp.Compare(a.request.Arrival, b.request.Arrival),
		cmp.Compare(a.serial, b.serial),
	)
}

func (t *Ticket) before(u *Ticket) bool { return compare(t, u) < 0 }

// first returns t. It makes a ticket sortable like a line.
func (t *Ticket) first() *Ticket { return t }

// sorted is a list in the order of the members' first tickets. Adding at the end
// and removing at the beginning, which is what queues do, are cheap.
type sorted[M member] []M

type member interface {
	comparable
	first() *Ticket
}

// rank returns how many members come before t.
func (s sorted[M]) rank(t *Ticket) int {
	i, _ := slices.BinarySearchFunc(s, t, func(m M, t *Ticket) int { return compare(m.first(), t) })
	return i
}

func (s *sorted[M]) insert(m M) {
	if n := len(*s); n == 0 || (*s)[n-1].first().before(m.first()) {
		*s = append(*s, m)
		return
	}
	*s = slices.Insert(*s, s.rank(m.first()), m)
}

// remove removes m, which must be in s and have the first ticket with which it
// was inserted.
func (s *sorted[M]) remove(m M) {
	if (*s)[0] != m {
		i := s.rank(m.first())
		*s = slices.Delete(*s, i, i+1)
		return
	}
	var none M
	(*s)[0] = none
	*s = (*s)[1:]
}

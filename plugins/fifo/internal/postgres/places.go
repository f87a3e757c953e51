package postgres

import (
	"slices"
	"sort"
)

// Hosts count arrivals, each for itself. For all of them the order is that of the
// log: a request has its place before the end of the entry that brought its
// first attempt. Places remembers which arrivals came with which entry, so that
// a failover, or who was slow to ask, gets a place among those who came when it
// did.
type places struct {
	marks []mark // in order
}

// A mark says that arrivals up to one came with an entry, or before it.
type mark struct {
	arrival int64
	seq     int64
}

// maxMarks is how many marks are kept. Beyond that, every other one of the older
// half goes, so that a place from long ago becomes one that is a little later.
const maxMarks = 4096

// last returns the last arrival that has a place.
func (p *places) last() int64 {
	if len(p.marks) == 0 {
		return 0
	}
	return p.marks[len(p.marks)-1].arrival
}

// find returns the place of an arrival that is not after the last.
func (p *places) find(arrival int64) int64 {
	i := sort.Search(len(p.marks), func(i int) bool { return p.marks[i].arrival >= arrival })
	m := p.marks[i]
	return place(entry{Seq: m.seq}, arrival-m.arrival)
}

// add notes that arrivals up to this one came with the entry.
func (p *places) add(arrival, seq int64) {
	if arrival <= p.last() {
		return
	}
	p.marks = append(p.marks, mark{arrival, seq})
	if len(p.marks) < maxMarks {
		return
	}
	var i int
	p.marks = slices.DeleteFunc(p.marks, func(mark) bool {
		i++
		return i < maxMarks/2 && i%2 == 1
	})
}

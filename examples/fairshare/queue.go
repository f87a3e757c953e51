package main

import (
	"cmp"
	"slices"
)

// A ticket is a request in line.
type ticket struct {
	group    string
	cost     float64
	priority int
	arrival  int64
}

// queue shares a number of places among groups in proportion to their weights:
// start-time fair queueing. Each group has a virtual time, which advances by
// the cost of what it starts, divided by its weight. The next to start is the
// first in line of the group whose time is the smallest. A group that comes
// back after a pause begins at the present virtual time: it neither saved
// anything up nor owes anything.
//
// It is a plain value without clocks and locks. The zero value must not be
// used; see newQueue.
type queue[K comparable] struct {
	weight func(group string) float64 // above 0
	now    float64                    // the virtual time: that of the last start
	groups map[string]*share[K]
}

// A share is what is known of one group.
type share[K comparable] struct {
	time    float64 // when its next request starts
	line    []entry[K]
	running int
}

type entry[K comparable] struct {
	key K
	ticket
}

func newQueue[K comparable](weight func(string) float64) *queue[K] {
	return &queue[K]{weight: weight, groups: map[string]*share[K]{}}
}

// group returns the share of a group, which is made if there is none.
func (q *queue[K]) group(name string) *share[K] {
	g, ok := q.groups[name]
	if !ok {
		g = &share[K]{}
		q.groups[name] = g
	}
	if len(g.line) == 0 {
		g.time = max(g.time, q.now)
	}
	return g
}

// add puts a request in line: within its group by priority, then by arrival.
func (q *queue[K]) add(key K, t ticket) {
	g := q.group(t.group)
	i, _ := slices.BinarySearchFunc(g.line, t, func(e entry[K], t ticket) int {
		return cmp.Or(cmp.Compare(t.priority, e.priority), cmp.Compare(e.arrival, t.arrival))
	})
	g.line = slices.Insert(g.line, i, entry[K]{key, t})
}

// remove takes a request out of line, and reports whether it was there.
func (q *queue[K]) remove(key K, group string) bool {
	g, ok := q.groups[group]
	if !ok {
		return false
	}
	i := slices.IndexFunc(g.line, func(e entry[K]) bool { return e.key == key })
	if i < 0 {
		return false
	}
	g.line = slices.Delete(g.line, i, i+1)
	q.forget(group, g)
	return true
}

// next starts the request whose turn it is, if one waits that may start.
func (q *queue[K]) next(may func(K) bool) (key K, ok bool) {
	var group *share[K]
	best := -1
	for _, g := range q.groups {
		i := slices.IndexFunc(g.line, func(e entry[K]) bool { return may(e.key) })
		if i < 0 {
			continue
		}
		if group == nil || cmp.Or(cmp.Compare(g.time, group.time), cmp.Compare(g.line[i].arrival, group.line[best].arrival)) < 0 {
			group, best = g, i
		}
	}
	if group == nil {
		return key, false
	}
	e := group.line[best]
	group.line = slices.Delete(group.line, best, best+1)
	q.now = max(q.now, group.time)
	group.time += e.cost / q.weight(e.group)
	group.running++
	return e.key, true
}

// run counts a request that runs already.
func (q *queue[K]) run(t ticket) {
	g := q.group(t.group)
	g.time += t.cost / q.weight(t.group)
	g.running++
}

// end ends a request that started with t, and settles what it really cost.
func (q *queue[K]) end(t ticket, cost float64) {
	g := q.group(t.group)
	g.time += (cost - t.cost) / q.weight(t.group)
	g.running--
	q.forget(t.group, g)
}

// forget drops a group of which nothing needs to be known any more.
func (q *queue[K]) forget(name string, g *share[K]) {
	if len(g.line) == 0 && g.running == 0 && g.time <= q.now {
		delete(q.groups, name)
	}
}

// position returns the place of a request in the line of its group, from 1.
func (q *queue[K]) position(key K, group string) int {
	g, ok := q.groups[group]
	if !ok {
		return 0
	}
	return 1 + slices.IndexFunc(g.line, func(e entry[K]) bool { return e.key == key })
}

package main

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func always(int) bool { return true }

// world is a queue with random groups, whose requests have random costs.
type world struct {
	*queue[int]
	dice    *rand.Rand
	weights map[string]float64
	names   []string
	most    map[string]float64 // cost of one request, by group
	tickets map[int]ticket     // all that were ever added
}

func newWorld(seed uint64) *world {
	w := &world{dice: rand.New(rand.NewPCG(seed, 1)), weights: map[string]float64{}, most: map[string]float64{}, tickets: map[int]ticket{}}
	for i := range 2 + w.dice.IntN(5) {
		name := fmt.Sprintf("g%d", i)
		w.names = append(w.names, name)
		w.weights[name] = 0.25 + 8*w.dice.Float64()
	}
	w.queue = newQueue[int](func(g string) float64 { return w.weights[g] })
	return w
}

func (w *world) arrive(group string) int {
	key := len(w.tickets)
	t := ticket{group: group, cost: 1 + 999*w.dice.Float64(), priority: w.dice.IntN(3), arrival: int64(key)}
	w.tickets[key] = t
	w.most[group] = max(w.most[group], t.cost)
	w.add(key, t)
	return key
}

// While two groups have somebody in line, what they got, by weight, differs by
// no more than one request of each: the bound of start-time fair queueing.
func TestGroupsInLineGetTheirShares(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		w := newWorld(seed)
		for _, g := range w.names {
			for range 200 {
				w.arrive(g)
			}
		}
		got := map[string]float64{}
		for range 150 { // no line is empty before
			key, ok := w.next(always)
			if !ok {
				t.Fatalf("seed %d: nobody starts", seed)
			}
			got[w.tickets[key].group] += w.tickets[key].cost
			for _, a := range w.names {
				for _, b := range w.names {
					bound := w.most[a]/w.weights[a] + w.most[b]/w.weights[b]
					if diff := got[a]/w.weights[a] - got[b]/w.weights[b]; diff > bound*1.000001 {
						t.Fatalf("seed %d: %s got %g and %s got %g, which differs by %g by weight; the bound is %g", seed, a, got[a], b, got[b], diff, bound)
					}
				}
			}
		}
	}
}

// A request starts after a bounded amount of work of each other group, however
// much those send and however long they were there before it.
func TestNobodyStarves(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		w := newWorld(seed)
		victim, others := w.names[0], w.names[1:]
		for range 1000 {
			w.arrive(others[w.dice.IntN(len(others))])
			if w.dice.IntN(2) == 0 {
				w.next(always)
			}
		}
		key := w.arrive(victim)
		work := map[string]float64{}
		for n := 0; ; n++ {
			for _, g := range others { // they send without end
				w.arrive(g)
			}
			started, ok := w.next(always)
			if !ok {
				t.Fatalf("seed %d: nobody starts", seed)
			}
			if started == key {
				break
			}
			g := w.tickets[started].group
			work[g] += w.tickets[started].cost
			if bound := w.most[g] + 1e-6; work[g] > 2*bound {
				t.Fatalf("seed %d: group %s got %g while one request of another group waited; the bound is %g", seed, g, work[g], 2*bound)
			}
		}
	}
}

// Whatever happens, each request starts once, the lines are in order, nothing
// is left behind and virtual time never goes back.
func TestTheQueueKeepsItsBooks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		w := newWorld(seed)
		waiting, running := map[int]bool{}, map[int]bool{}
		last := w.now
		for range 500 {
			switch w.dice.IntN(4) {
			case 0, 1:
				waiting[w.arrive(w.names[w.dice.IntN(len(w.names))])] = true
			case 2:
				key, ok := w.next(always)
				if ok != (len(waiting) > 0) {
					t.Fatalf("seed %d: %d wait, and one starts: %v", seed, len(waiting), ok)
				}
				if ok && !waiting[key] {
					t.Fatalf("seed %d: %d starts, and does not wait", seed, key)
				}
				if ok {
					w.mustBeFirst(t, seed, key, waiting)
					delete(waiting, key)
					running[key] = true
				}
			case 3:
				w.endOne(waiting, running)
			}
			if w.now < last {
				t.Fatalf("seed %d: virtual time went from %g to %g", seed, last, w.now)
			}
			last = w.now
		}
		for len(waiting)+len(running) > 0 {
			w.endOne(waiting, running)
		}
		for name, g := range w.groups {
			if len(g.line) > 0 || g.running != 0 {
				t.Fatalf("seed %d: group %s is left with %+v", seed, name, g)
			}
		}
	}
}

// endOne lets a random request leave or end.
func (w *world) endOne(waiting, running map[int]bool) {
	for key := range waiting {
		w.remove(key, w.tickets[key].group)
		delete(waiting, key)
		return
	}
	for key := range running {
		w.end(w.tickets[key], w.tickets[key].cost*2*w.dice.Float64())
		delete(running, key)
		return
	}
}

func (w *world) mustBeFirst(t *testing.T, seed uint64, started int, waiting map[int]bool) {
	t.Helper()
	first := w.tickets[started]
	for key := range waiting {
		other := w.tickets[key]
		if key != started && other.group == first.group &&
			(other.priority > first.priority || other.priority == first.priority && other.arrival < first.arrival) {
			t.Fatalf("seed %d: %+v starts before %+v", seed, first, other)
		}
	}
}

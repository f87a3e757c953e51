package keys

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/usherproxy/usher/policy"
)

// exact is how many candidates are ranked exactly. Those behind them keep the
// order of their tiers alone: a request that finds so many taken will find no
// better one by looking closer.
const exact = 32

// A place is what ranks a candidate: the fields in their order; less is better.
type place struct {
	tier  uint64
	words uint64 // what the words of the order say
	draw  uint64
	index int32
	why   int32 // in whys, for those that are busy
}

// before reports whether p is better than q.
func (p *place) before(q *place) bool {
	switch {
	case p.tier != q.tier:
		return p.tier < q.tier
	case p.words != q.words:
		return p.words < q.words
	case p.draw != q.draw:
		return p.draw < q.draw
	}
	return p.index < q.index
}

func comparePlaces(p, q place) int {
	switch {
	case p.before(&q):
		return -1
	case q.before(&p):
		return 1
	}
	return 0
}

// The parts of a tier: what is busy comes last, then priority counts, then
// whether there is a weight, and among equals a probe leads.
const (
	tierBusy       = 1 << 40
	tierWeightless = 1 << 1
	tierNoProbe    = 1 << 0
)

// tierOf returns the tier of an eligible candidate that is not probed.
func tierOf(c *policy.Candidate) uint64 {
	priority := min(max(c.Priority, math.MinInt32), math.MaxInt32)
	tier := uint64(priority-math.MinInt32)<<8 | tierNoProbe
	if c.Weight <= 0 {
		tier |= tierWeightless
	}
	return tier
}

// A ranking is the working memory of one selection.
type ranking struct {
	places []place
	whys   []policy.Why
	due    []int32 // indexes of places
	tiers  tierCounts
}

var rankings = sync.Pool{New: func() any { return new(ranking) }}

func (r *ranking) reset() {
	r.places, r.due = r.places[:0], r.due[:0]
	clear(r.whys)
	r.whys = r.whys[:0]
}

// weigh turns the draws of candidates into tickets, if their weights differ.
func (r *ranking) weigh(candidates []policy.Candidate) {
	mixed := false
	for i := range r.places {
		if candidates[r.places[i].index].Weight != candidates[r.places[0].index].Weight {
			mixed = true
			break
		}
	}
	for i := range r.places {
		p := &r.places[i]
		if mixed {
			p.draw = ticket(p.draw, candidates[p.index].Weight)
		} else {
			p.draw = ^p.draw // a ticket falls as what was drawn rises
		}
	}
}

// sort puts the best places first, in order, and the others behind them, each
// tier from a start of its own so that none of them is always the last.
func (r *ranking) sort(start uint64) {
	if len(r.places) <= exact {
		slices.SortFunc(r.places, comparePlaces)
		return
	}
	selectBest(r.places, exact)
	rest := r.places[exact:]
	if start != 0 {
		n := start % uint64(len(rest))
		rotate(rest, int(n))
	}
	r.tiers.sort(rest)
}

// selectBest moves the n best places to the front, in order.
func selectBest(places []place, n int) {
	best := places[:n]
	for i := n/2 - 1; i >= 0; i-- {
		sink(best, i)
	}
	for i := n; i < len(places); i++ {
		if places[i].before(&best[0]) {
			places[i], best[0] = best[0], places[i]
			sink(best, 0)
		}
	}
	slices.SortFunc(best, comparePlaces)
}

// sink restores the heap with the worst on top after its i-th place changed.
func sink(heap []place, i int) {
	for {
		worst := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(heap); child++ {
			if heap[worst].before(&heap[child]) {
				worst = child
			}
		}
		if worst == i {
			return
		}
		heap[i], heap[worst] = heap[worst], heap[i]
		i = worst
	}
}

// rotate moves the first n places to the end.
func rotate(places []place, n int) {
	slices.Reverse(places[:n])
	slices.Reverse(places[n:])
	slices.Reverse(places)
}

// tierCounts sorts places by their tiers, of which there are few.
type tierCounts struct {
	tiers  []uint64
	sorted []place
}

// sort sorts by tier and leaves the order of equals.
func (t *tierCounts) sort(places []place) {
	t.tiers = t.tiers[:0]
	for i := range places {
		if tier := places[i].tier; len(t.tiers) == 0 || t.tiers[len(t.tiers)-1] != tier {
			if !slices.Contains(t.tiers, tier) {
				t.tiers = append(t.tiers, tier)
			}
			if len(t.tiers) > maxTiers {
				slices.SortStableFunc(places, func(p, q place) int { return cmp.Compare(p.tier, q.tier) })
				return
			}
		}
	}
	if len(t.tiers) < 2 {
		return
	}
	slices.Sort(t.tiers)
	t.sorted = append(t.sorted[:0], places...)
	next := places[:0]
	for _, tier := range t.tiers {
		for i := range t.sorted {
			if t.sorted[i].tier == tier {
				next = append(next, t.sorted[i])
			}
		}
	}
}

// maxTiers is the number of tiers above which sorting is faster than going
// through the places once for each.
const maxTiers = 8

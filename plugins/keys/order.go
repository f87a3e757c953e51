package keys

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// An Order is how candidates of equal priority are ranked.
type Order string

// The orders.
const (
	// Weighted draws candidates by their weights.
	Weighted Order = "weighted"
	// LeastInFlight prefers the key with the fewest running attempts.
	LeastInFlight Order = "least_in_flight"
	// Fixed keeps the order of the configuration.
	Fixed Order = "fixed"
)

// Orders lists all orders.
func Orders() []Order { return []Order{Weighted, LeastInFlight, Fixed} }

// Valid reports whether o is one of [Orders].
func (o Order) Valid() bool { return slices.Contains(Orders(), o) }

// A Seed is where the order of one selection comes from. It is no time and no
// verdict depends on it.
type Seed uint64

// A place is what ranks a candidate: the fields in their order.
type place struct {
	busy bool
	tier
	probe    bool
	inFlight int
	ticket   float64
	index    int
}

// A tier holds candidates that only the Order tells apart.
type tier struct {
	priority   int
	weightless bool
}

func tierOf(c *policy.Candidate) tier { return tier{c.Priority, c.Weight <= 0} }

func (t tier) compare(u tier) int {
	return cmp.Or(cmp.Compare(t.priority, u.priority), falseFirst(t.weightless, u.weightless))
}

// newPlace returns the place of a candidate. Only what the order asks for is
// filled in.
func newPlace(order Order, seed Seed, c *policy.Candidate, index int) place {
	p := place{tier: tierOf(c), index: index}
	switch order {
	case Weighted:
		p.ticket = seed.ticket(c)
	case LeastInFlight:
		p.inFlight, p.ticket = c.Load.InFlight, seed.ticket(c)
	}
	return p
}

func (p place) compare(q place) int {
	return cmp.Or(
		falseFirst(p.busy, q.busy),
		p.tier.compare(q.tier),
		-falseFirst(p.probe, q.probe),
		cmp.Compare(p.inFlight, q.inFlight),
		cmp.Compare(p.ticket, q.ticket),
		cmp.Compare(p.index, q.index),
	)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// ticket draws the candidate's number; the smallest wins. It is distributed
// exponentially, at the rate of the weight: so the winner among any set of
// candidates is drawn by weight, and with the same seed, a candidate that
// leaves the set moves no other.
func (s Seed) ticket(c *policy.Candidate) float64 {
	return -math.Log(uniform(hash(uint64(s), c.ID))) / float64(max(c.Weight, 1))
}

// jitter returns between half of d and all of d, by the dice of id.
func jitter(d time.Duration, id string) time.Duration {
	return d - time.Duration(float64(d)/2*uniform(hash(0, id)))
}

// uniform maps h to (0, 1].
func uniform(h uint64) float64 { return float64(h>>11+1) / (1 << 53) }

// hash returns FNV-1a of s from the given start on, mixed by the finalizer of
// SplitMix64. It is the same in every process.
func hash(start uint64, s string) uint64 {
	h := mix(start) ^ 0xcbf29ce484222325
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return mix(h)
}

func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

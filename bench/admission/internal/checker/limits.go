package checker

import (
	"cmp"
	"slices"
	"sort"
)

// limits are the limits of a scope and when each may have been in force: from when a
// request that brought it was asked, until another was known to the store that was
// asked after that.
type limits struct {
	values []int64          // in order
	spans  map[int64][]span // by value, in the order of their beginning, merged
}

// A write is a limit that came with a request.
type write struct {
	value int64
	span  // from when it was asked to when it was known
}

func limitsOf(uses []*use) map[string]*limits {
	writes := map[string][]write{}
	for _, u := range uses {
		scopes := slices.Clone(u.own)
		for _, c := range u.candidates {
			scopes = append(scopes, c...)
		}
		for _, s := range scopes {
			if s.Window > 0 {
				continue
			}
			to := u.known()
			if u.attempt > 1 { // has an old place, and may be too late to bring a limit
				to = never
			}
			writes[s.ID] = append(writes[s.ID], write{s.Limit, span{u.ask, to}})
		}
	}
	all := map[string]*limits{}
	for scope, list := range writes {
		all[scope] = newLimits(list)
	}
	return all
}

func newLimits(list []write) *limits {
	slices.SortFunc(list, func(a, b write) int { return cmp.Compare(a.from, b.from) })
	knownAfter := make([]int64, len(list)+1) // when the first of those from i on was known
	knownAfter[len(list)] = never
	for i := len(list) - 1; i >= 0; i-- {
		knownAfter[i] = min(knownAfter[i+1], list[i].to)
	}
	l := &limits{spans: map[int64][]span{}}
	for _, w := range list {
		next := len(list)
		if w.to < never {
			next = sort.Search(len(list), func(i int) bool { return list[i].from > w.to })
		}
		s, have := span{w.from, knownAfter[next]}, l.spans[w.value]
		if have == nil {
			l.values = append(l.values, w.value)
		}
		if n := len(have); n > 0 && have[n-1].to >= s.from {
			have[n-1].to = max(have[n-1].to, s.to)
		} else {
			have = append(have, s)
		}
		l.spans[w.value] = have
	}
	slices.Sort(l.values)
	return l
}

func (l *limits) least() int64 { return l.values[0] }
func (l *limits) most() int64  { return l.values[len(l.values)-1] }

// highest returns the highest limit that may have been in force in a stretch of time.
func (l *limits) highest(from, to int64) int64 {
	if len(l.values) == 1 {
		return l.values[0]
	}
	for _, v := range slices.Backward(l.values) {
		list := l.spans[v]
		i := sort.Search(len(list), func(i int) bool { return list[i].to >= from })
		if i < len(list) && list[i].from <= to {
			return v
		}
	}
	return l.most()
}

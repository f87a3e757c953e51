package checker

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/usherproxy/usher/bench/admission/internal/events"
)

// A timeline says when a scope was full, in order.
type timeline struct {
	full []span // by the lowest limit that it ever had
	brim []span // by the highest
}

func (c *check) timelines(held map[string][]interval) map[string]*timeline {
	all := map[string]*timeline{}
	for scope, list := range held {
		limits, ordered := c.limits[scope], changes(list)
		all[scope] = &timeline{full: spansOf(ordered, limits.least()), brim: spansOf(ordered, limits.most())}
	}
	for scope, spans := range c.spent() {
		if t := all[scope]; t != nil {
			t.full = append(t.full, spans...)
		}
	}
	return all
}

// spansOf returns when at least n were held.
func spansOf(ordered []change, n int64) (spans []span) {
	var used int64
	for _, ch := range ordered {
		was := used
		used += ch.n
		switch {
		case was < n && used >= n:
			spans = append(spans, span{ch.at, never})
		case was >= n && used < n:
			spans[len(spans)-1].to = ch.at
		}
	}
	return spans
}

// fullBefore returns when the scope was full for the last time before an instant, or 0.
func (t *timeline) fullBefore(at int64) int64 {
	i := sort.Search(len(t.brim), func(i int) bool { return t.brim[i].from >= at }) - 1
	if i < 0 {
		return 0
	}
	return min(at, t.brim[i].to)
}

// An inference says since when a request must have been admitted, if the order
// was right, and whose admission says so.
type inference struct {
	at int64
	by *use
}

// An admission is a use that ran, and not before an instant was admitted.
type admission struct {
	*use
	from int64
	kind int
}

// inferred returns the requests that were passed, if they were not admitted
// before their callers saw it.
func (c *check) inferred(timelines map[string]*timeline) map[*use]inference {
	kinds := &kinds{ids: map[string]int{}}
	var ran []admission
	for _, u := range c.uses {
		if u.run == never {
			continue
		}
		a := admission{u, u.ask, kinds.of(u.takes())}
		for _, s := range u.takes() {
			a.from = max(a.from, timelines[s.ID].fullBefore(u.run))
		}
		ran = append(ran, a)
	}
	slices.SortFunc(ran, func(a, b admission) int { return cmp.Compare(a.run, b.run) })
	found := map[*use]inference{}
	for _, x := range c.uses {
		if x.wait == never || c.disturbed(x) {
			continue
		}
		passes := c.passes(x, kinds)
		until := min(x.run, x.left)
		for i := sort.Search(len(ran), func(i int) bool { return ran[i].run > x.wait }); i < len(ran) && ran[i].run < until; i++ {
			if y := ran[i]; passes[y.kind] && x.wait < y.from && x.before(y.use) {
				found[x] = inference{y.run, y.use}
				break
			}
		}
	}
	return found
}

// before reports whether u comes before o for sure.
func (u *use) before(o *use) bool {
	if u.priority != o.priority {
		return u.priority > o.priority
	}
	return u.placeTo < o.placeFrom
}

// kinds numbers sets of scopes.
type kinds struct {
	ids  map[string]int
	sets [][]events.Scope
}

func (k *kinds) of(scopes []events.Scope) int {
	var name strings.Builder
	for _, s := range slices.SortedFunc(slices.Values(scopes), func(a, b events.Scope) int { return cmp.Compare(a.ID, b.ID) }) {
		name.WriteString(s.ID + "\x00")
	}
	id, ok := k.ids[name.String()]
	if !ok {
		id = len(k.sets)
		k.ids[name.String()] = id
		k.sets = append(k.sets, scopes)
	}
	return id
}

// passes returns, for each kind of what a request takes, whether it passes x.
func (c *check) passes(x *use, k *kinds) []bool {
	list := make([]bool, len(k.sets))
	for i := range x.candidates {
		needs := x.needs(i)
		for kind, taken := range k.sets {
			shared := 0
			for _, s := range needs {
				if holds(taken, s.ID) {
					shared++
				}
			}
			if shared == len(needs) || c.strict && shared > 0 {
				list[kind] = true
			}
		}
	}
	return list
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

package checker

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/usherproxy/usher/bench/admission/internal/events"
)

// counted returns the uses that ran and count in each window, in the order in which they
// asked.
func (c *check) counted() map[events.Scope][]*use {
	all := map[events.Scope][]*use{}
	for _, u := range c.uses {
		if u.run == never {
			continue
		}
		for _, s := range u.rates(u.candidate) {
			all[s] = append(all[s], u)
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b *use) int { return cmp.Compare(a.ask, b.ask) })
	}
	return all
}

// overrun returns where more requests were granted within a window than its limit: those that
// asked and ran within it were granted in between.
func (c *check) overrun() (found []string) {
	for s, list := range c.counted() {
		for i, first := range list {
			n := int64(0)
			for _, u := range list[i:] {
				if u.ask >= first.ask+s.Window {
					break
				}
				if u.run < first.ask+s.Window {
					n++
				}
			}
			if n > s.Limit {
				found = append(found, fmt.Sprintf("%s got %d of %d requests within its window from %s on", s.ID, n, s.Limit, first))
			}
		}
	}
	slices.Sort(found)
	return found
}

// spent returns when windows of a scope may have been used up: each request that ran
// counts at the earliest when it asks, and at the latest for a window after it ran.
func (c *check) spent() map[string][]span {
	all := map[string][]span{}
	for s, list := range c.counted() {
		var times []interval
		for _, u := range list {
			times = append(times, interval{span: span{u.ask, u.run + s.Window}, use: u})
		}
		all[s.ID] = append(all[s.ID], spansOf(changes(times), s.Limit)...)
	}
	return all
}

package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/usherproxy/usher/bench/admission/internal/events"
)

// lost returns who waited for too long for what was free.
func (c *check) lost(timelines map[string]*timeline) (found []string) {
	for _, u := range c.uses {
		until := min(u.run, u.left)
		if u.wait == never || until-u.wait <= int64(c.patience.Notice) || c.strict && c.behind(u) {
			continue
		}
		for i := range u.candidates {
			if free := c.free(timelines, u.needs(i), span{u.wait, until}); free > int64(c.patience.Notice) {
				found = append(found, fmt.Sprintf("%s waited while all that it needs was free for %s", u, time.Duration(free)))
				break
			}
		}
	}
	return found
}

// behind reports whether another request that waits at the same time may come before u
// in strict order.
func (c *check) behind(u *use) bool {
	for _, o := range c.uses {
		if o == u || o.wait == never || o.wait > min(u.run, u.left) || min(o.run, o.left) < u.wait || u.before(o) {
			continue
		}
		for i := range o.candidates {
			for _, s := range o.needs(i) {
				for j := range u.candidates {
					if holds(u.needs(j), s.ID) {
						return true
					}
				}
			}
		}
	}
	return false
}

// free returns for how long at a stretch all of scopes had room within w.
func (c *check) free(timelines map[string]*timeline, scopes []events.Scope, w span) (longest int64) {
	blocked := slices.Clone(c.trouble)
	for _, s := range scopes {
		if t := timelines[s.ID]; t != nil {
			blocked = append(blocked, t.full...)
		}
	}
	blocked = append(blocked, span{w.to, never})
	slices.SortFunc(blocked, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	from := w.from
	for _, b := range blocked {
		longest = max(longest, min(b.from, w.to)-from)
		from = max(from, b.to)
	}
	return longest
}

package checker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/usherproxy/usher/bench/admission/internal/events"
)

// Patience is how long things may take.
type Patience struct {
	// Notice is how long what is free may stay so while somebody waits for it.
	Notice time.Duration

	// Dead is how long after trouble nothing is said of what is free: as long as
	// the leases of a dead replica last.
	Dead time.Duration

	// Fence is how long a replica that goes on after it was stopped may use what
	// was given to others meanwhile.
	Fence time.Duration
}

// DefaultPatience is that of a busy machine, for what the documentation of the policy says.
var DefaultPatience = Patience{Notice: 10 * time.Second, Dead: 20 * time.Second, Fence: 2 * time.Second}

// A Report is what was found. All lists are empty if nothing is wrong.
type Report struct {
	Over, Order, Leaks, Lost []string

	// Rates are windows that got more than their limit, and Rank requests that ran on
	// another candidate than the first that had room.
	Rates, Rank []string

	// How much was looked at.
	Asked, Ran, Waited int
}

// OK reports whether nothing is wrong.
func (r *Report) OK() bool {
	return len(r.Over)+len(r.Order)+len(r.Leaks)+len(r.Lost)+len(r.Rates)+len(r.Rank) == 0
}

// String returns the numbers of what was found, and the first of each kind.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d asked, %d ran, %d waited; over-admissions %d, order violations %d, leaks %d, lost wake-ups %d, windows exceeded %d, ranks ignored %d",
		r.Asked, r.Ran, r.Waited, len(r.Over), len(r.Order), len(r.Leaks), len(r.Lost), len(r.Rates), len(r.Rank))
	for _, list := range [][]string{r.Over, r.Order, r.Leaks, r.Lost, r.Rates, r.Rank} {
		if len(list) > 0 {
			b.WriteString("\n  " + list[0])
		}
	}
	return b.String()
}

// Check looks at events, which are in the order of their time. Strict says that the
// requests were ordered strictly. The error is about events that make no sense.
func Check(all []events.Event, strict bool, p Patience) (*Report, error) {
	s, err := tell(all, p)
	if err != nil {
		return nil, err
	}
	r := &Report{Asked: len(s.uses)}
	for _, u := range s.uses {
		if u.run < never {
			r.Ran++
		}
		if u.wait < never {
			r.Waited++
		}
	}
	c := &check{story: s, strict: strict, patience: p}
	c.limits = limitsOf(s.uses)
	uses := c.intervals(nil)
	r.Over = c.exceeded(uses)
	timelines := c.timelines(uses)
	since := c.inferred(timelines)
	for _, f := range c.exceeded(c.intervals(since)) {
		if !slices.Contains(r.Over, f) {
			r.Order = append(r.Order, f)
		}
	}
	r.Lost = c.lost(timelines)
	r.Rates, r.Rank = c.overrun(), c.misplaced()
	for _, a := range s.audits {
		if a.Got < a.Scope.Limit {
			r.Leaks = append(r.Leaks, fmt.Sprintf("at the end, %d of the %d of %s can be had", a.Got, a.Scope.Limit, a.Scope.ID))
		}
	}
	return r, nil
}

type check struct {
	*story
	strict   bool
	patience Patience
	limits   map[string]*limits
}

// An interval is a time in which a use holds a scope.
type interval struct {
	span
	use *use
	why string
}

// intervals returns who holds what, by scope. Since says since when some have held
// their scopes before they ran, as was inferred.
func (c *check) intervals(since map[*use]inference) map[string][]interval {
	all := map[string][]interval{}
	add := func(u *use, scopes []events.Scope, s span, why string) {
		for _, part := range c.awake(u, s) {
			for _, scope := range scopes {
				all[scope.ID] = append(all[scope.ID], interval{part, u, why})
			}
		}
	}
	for _, u := range c.uses {
		if i, ok := since[u]; ok {
			why := fmt.Sprintf(", as %s has to hold it since %s ran, which came later", u, i.by)
			add(u, u.surely(), span{i.at, min(u.run, u.left)}, why)
		}
		if u.run < never {
			add(u, u.takes(), span{u.run, u.end}, "")
		}
	}
	return all
}

// surely returns the scopes that u needs whatever candidate serves it. Which one that
// is may change until its caller is told.
func (u *use) surely() []events.Scope {
	var sure []events.Scope
	for _, s := range u.needs(0) {
		everywhere := true
		for i := range u.candidates {
			everywhere = everywhere && holds(u.needs(i), s.ID)
		}
		if everywhere {
			sure = append(sure, s)
		}
	}
	return sure
}

// awake returns the parts of s in which the replica of u was not stopped.
func (c *check) awake(u *use, s span) []span {
	parts := []span{s}
	for _, f := range c.frozen[u.replica] {
		last := parts[len(parts)-1]
		if f.from >= last.to || f.to <= last.from {
			continue
		}
		parts = append(parts[:len(parts)-1], span{last.from, max(f.from, last.from)}, span{min(f.to, last.to), last.to})
	}
	return slices.DeleteFunc(parts, func(p span) bool { return p.from >= p.to })
}

// A change is the beginning or the end of an interval.
type change struct {
	at    int64
	n     int64 // 1 or -1
	holds *interval
}

// changes returns them in order, ends first where they coincide.
func changes(list []interval) []change {
	all := make([]change, 0, 2*len(list))
	for i := range list {
		all = append(all, change{list[i].from, 1, &list[i]}, change{list[i].to, -1, &list[i]})
	}
	slices.SortFunc(all, func(a, b change) int {
		if a.at != b.at {
			return int(min(max(a.at-b.at, -1), 1))
		}
		return int(a.n - b.n)
	})
	return all
}

// exceeded returns where more was held of a scope than its limit.
func (c *check) exceeded(held map[string][]interval) (found []string) {
	for _, scope := range sortedKeys(held) {
		limits := c.limits[scope]
		holders := map[*interval]bool{}
		for _, ch := range changes(held[scope]) {
			if ch.n < 0 {
				delete(holders, ch.holds)
				continue
			}
			holders[ch.holds] = true
			lastAsk := int64(0)
			for h := range holders {
				lastAsk = max(lastAsk, h.use.ask)
			}
			if limit := limits.highest(min(lastAsk, ch.at), ch.at); int64(len(holders)) > limit {
				why := ""
				for h := range holders {
					if h.why > why {
						why = h.why
					}
				}
				found = append(found, fmt.Sprintf("%s holds %s at %d: %d of %d%s", ch.holds.use, scope, ch.at, len(holders), limit, why))
			}
		}
	}
	return found
}

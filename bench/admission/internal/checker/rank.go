package checker

import (
	"cmp"
	"fmt"
	"slices"
)

// misplaced returns requests that ran on another candidate than the first that had room. Callers
// see that for sure only if there is one replica, since one may keep for a while what another
// would like to have, and only if all who asked for a scope until then, and were not done
// when the request came, might have it at once. Windows are not looked at.
func (c *check) misplaced() (found []string) {
	for _, u := range c.uses {
		if u.replica != c.uses[0].replica || len(u.rates(u.candidate)) > 0 {
			return nil
		}
	}
	byAsk := slices.SortedFunc(slices.Values(c.uses), func(a, b *use) int { return cmp.Compare(a.ask, b.ask) })
	for _, u := range byAsk {
		if u.run == never || u.candidate == 0 {
			continue
		}
		demand := map[string]int64{}
		for _, o := range byAsk {
			if o.ask > u.run {
				break
			}
			if o.ends() < u.ask {
				continue
			}
			for scope := range o.wants() {
				demand[scope]++
			}
		}
		for i := range u.candidate {
			if c.room(u, i, demand) {
				found = append(found, fmt.Sprintf("%s ran on candidate %d though candidate %d had room", u, u.candidate, i))
				break
			}
		}
	}
	return found
}

// room reports whether all who want what u needs with a candidate may have it at once.
func (c *check) room(u *use, candidate int, demand map[string]int64) bool {
	for _, s := range u.needs(candidate) {
		if demand[s.ID] > c.limits[s.ID].least() {
			return false
		}
	}
	return true
}

// ends returns when the store has heard the last of u.
func (u *use) ends() int64 {
	if u.run < never {
		return u.end
	}
	if u.left < never {
		return u.left + inFlight
	}
	return never
}

// wants returns the scopes that u may come to hold.
func (u *use) wants() map[string]bool {
	all := map[string]bool{}
	for i := range u.candidates {
		for _, s := range u.needs(i) {
			all[s.ID] = true
		}
	}
	return all
}

package checker

import (
	"fmt"
	"slices"

	"github.com/usherproxy/usher/bench/admission/internal/events"
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
	asked, ended := map[string][]int64{}, map[string][]int64{}
	for _, u := range c.uses {
		for scope := range u.wants() {
			asked[scope] = append(asked[scope], u.ask)
			ended[scope] = append(ended[scope], u.ends())
		}
	}
	for scope := range asked {
		slices.Sort(asked[scope])
		slices.Sort(ended[scope])
	}
	for _, u := range c.uses {
		if u.run == never {
			continue
		}
		for i := range u.candidate {
			if !slices.ContainsFunc(u.needs(i), func(s events.Scope) bool {
				until, _ := slices.BinarySearch(asked[s.ID], u.run+1)
				done, _ := slices.BinarySearch(ended[s.ID], u.ask)
				return int64(until-done) > c.limits[s.ID].least()
			}) {
				found = append(found, fmt.Sprintf("%s ran on candidate %d though candidate %d had room", u, u.candidate, i))
				break
			}
		}
	}
	return found
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

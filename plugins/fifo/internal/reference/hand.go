package reference

import (
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// Hand ends the lease of e, and lets heir run on what it held. On scopes for which
// somebody was not known to wait, he passes him rightfully.
func (m *Model) Hand(now time.Time, e *Entry, usage *policy.Usage, heir *Entry, candidate int, known func(o *Entry, scope string) bool) {
	m.end(e, usage)
	m.known = known
	switch {
	case slices.Contains(m.Waiting, heir):
		m.leave(heir)
		m.grant(now, heir, candidate)
	case heir.Candidate != candidate:
		m.end(heir, nil)
		m.grant(now, heir, candidate)
	}
	m.known = nil
	m.Settle(now)
}

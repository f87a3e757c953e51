package keys

import (
	"slices"
	"strings"
	"time"
)

// clearLocked makes nothing known of a fact that was known until now.
func (s *subject) clearLocked(now time.Time, f fact) {
	switch f {
	case factQuota:
		s.draft.Quota = s.draft.Quota.join(Hold{Cleared: now})
	case factCooldown:
		s.draft.Cooldown = s.draft.Cooldown.join(Hold{Cleared: now})
	case factAccount:
		s.draft.Account = AccountState{Standing: StandingGood, At: now}
	case factLearned:
		s.draft.Learned = Learned{Since: now}
	case factRefused:
		s.refused = breaker{Breaker: Breaker{MovedAt: now}}
	}
	kind, name := f.cut()
	switch kind {
	case windowFacts:
		s.draft.Windows = slices.Clone(s.draft.Windows)
		for i := range s.draft.Windows {
			if w := &s.draft.Windows[i]; w.Name == name {
				w.Used, w.ObservedAt = 0, later(w.ObservedAt, now)
			}
		}
	case circuitFacts:
		*s.circuitLocked(name, true) = breaker{Breaker: Breaker{MovedAt: now}}
	case healthFacts:
		s.draft.Health, _ = withHealth(s.draft.Health, Health{Format: name, Score: 1, At: now})
	}
}

// cut splits the name of a fact of which there may be several.
func (f fact) cut() (kind, name string) {
	before, after, found := strings.Cut(string(f), "/")
	if !found {
		return "", ""
	}
	return before + "/", after
}

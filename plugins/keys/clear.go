package keys

import (
	"slices"
	"strings"
	"time"
)

// clearLocked makes nothing known of a fact that was known until now.
func (s *subject) clearLocked(now time.Time, f fact) {
	d := &s.draft
	switch f {
	case factQuota:
		d.Quota = d.Quota.join(Hold{Cleared: past(now, d.Quota.At)})
	case factCooldown:
		d.Cooldown = d.Cooldown.join(Hold{Cleared: past(now, d.Cooldown.At)})
	case factAccount:
		d.Account = AccountState{Standing: StandingGood, At: past(now, d.Account.At)}
	case factLearned:
		d.Learned = Learned{Since: past(now, d.Learned.Since)}
	case factRefused:
		s.refused = closed(now, s.refused)
	}
	kind, name := f.cut()
	switch kind {
	case windowFacts:
		d.Windows = slices.Clone(d.Windows)
		for i := range d.Windows {
			if w := &d.Windows[i]; w.Name == name {
				w.Used, w.ObservedAt = 0, past(now, w.ObservedAt)
			}
		}
	case circuitFacts:
		b := s.circuitLocked(name, true)
		*b = closed(now, *b)
	case healthFacts:
		for _, h := range d.Health {
			if h.Format == name {
				d.Health, _ = withHealth(d.Health, Health{Format: name, Score: 1, At: past(now, h.At)})
			}
		}
	}
}

// past returns now, or the first instant past t: what is cleared counts as said
// after what it clears.
func past(now, t time.Time) time.Time {
	if now.After(t) {
		return now
	}
	return t.Add(time.Nanosecond)
}

func closed(now time.Time, b breaker) breaker {
	return breaker{Breaker: Breaker{MovedAt: past(now, b.MovedAt)}}
}

// cut splits the name of a fact of which there may be several.
func (f fact) cut() (kind, name string) {
	before, after, found := strings.Cut(string(f), "/")
	if !found {
		return "", ""
	}
	return before + "/", after
}

package keys

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A written fact is how a fact is told to others. Of two that are told of one
// fact, the one of the higher rank holds, unless it was said before it was
// cleared.
type written struct {
	value         any
	rank          [2]time.Time
	said, cleared time.Time

	// until is when the fact stops to matter, or the zero time if it does not.
	until time.Time
}

// writeLocked returns a fact of the subject, or reports that nothing is known.
func (s *subject) writeLocked(f fact) (w written, ok bool) {
	d := &s.draft
	switch f {
	case factQuota:
		return writtenHold(d.Quota), d.Quota != Hold{}
	case factCooldown:
		return writtenHold(d.Cooldown), d.Cooldown != Hold{}
	case factAccount:
		return written{value: d.Account, rank: [2]time.Time{d.Account.At}, said: d.Account.At, until: d.Account.Until}, d.Account != AccountState{}
	case factRefused:
		return writtenBreaker(s.refused.Breaker), s.refused.Breaker != Breaker{}
	case factTaken:
		return written{value: s.takenAt, rank: [2]time.Time{s.takenAt}, said: s.takenAt, until: s.takenAt.Add(maxQuota)}, !s.takenAt.IsZero()
	case factLearned:
		l := d.Learned
		until := later(l.Since, l.CandidateAt).Add(learnedFor)
		return written{value: l, rank: [2]time.Time{l.Since, l.CandidateAt}, said: l.Since, until: until}, l != Learned{}
	}
	kind, name := f.cut()
	switch kind {
	case windowFacts:
		if i := slices.IndexFunc(d.Windows, func(w policy.Window) bool { return w.Name == name }); i >= 0 {
			return writtenWindow(d.Windows[i]), true
		}
	case circuitFacts:
		if b := s.circuitLocked(name, false); b != nil {
			return writtenBreaker(b.Breaker), b.Breaker != Breaker{}
		}
	case healthFacts:
		if i := slices.IndexFunc(d.Health, func(h Health) bool { return h.Format == name }); i >= 0 {
			h := d.Health[i]
			return written{value: h, rank: [2]time.Time{h.At}, said: h.At}, true
		}
	}
	return written{}, false
}

func writtenHold(h Hold) written {
	return written{
		value: h, rank: [2]time.Time{h.Until, h.At}, said: h.At, cleared: h.Cleared, until: later(h.Until, h.Cleared),
	}
}

func writtenBreaker(b Breaker) written {
	return written{
		value: b, rank: [2]time.Time{b.MovedAt, b.ProbedAt}, said: b.MovedAt, until: later(later(b.MovedAt, b.Until), b.ProbeUntil),
	}
}

// writtenWindow ranks what has more used above less, of two observations of one
// instant. A quota that resets nobody knows when always matters.
func writtenWindow(w policy.Window) written {
	used := time.Unix(0, int64(w.Used*1e9))
	until := later(w.ObservedAt, resets(w))
	if resets(w).IsZero() && w.Kind == "" && w.Used > 0 {
		until = time.Time{}
	}
	return written{value: observationOf(w), rank: [2]time.Time{w.ObservedAt, used}, said: w.ObservedAt, until: until}
}

// mergeLocked adds what somebody else knows of a fact, and reports whether that
// is news. Facts may be merged in any order, and more than once.
func (s *subject) mergeLocked(f fact, raw json.RawMessage, cleared time.Time) (news bool, err error) {
	joinHolds := func(old, said Hold) (Hold, bool) {
		joined := old.join(said).join(Hold{Cleared: cleared})
		return joined, !joined.equal(old)
	}
	switch f {
	case factQuota:
		return mergeInto(&s.draft.Quota, raw, joinHolds)
	case factCooldown:
		return mergeInto(&s.draft.Cooldown, raw, joinHolds)
	case factAccount:
		return mergeInto(&s.draft.Account, raw, func(old, said AccountState) (AccountState, bool) { return said, said.newer(old) })
	case factLearned:
		return mergeInto(&s.draft.Learned, raw, func(old, said Learned) (Learned, bool) { return said, said.newer(old) })
	case factTaken:
		return mergeInto(&s.takenAt, raw, func(old, said time.Time) (time.Time, bool) { return said, said.After(old) })
	case factRefused:
		return mergeInto(&s.refused, raw, mergeBreakers)
	}
	kind, name := f.cut()
	switch kind {
	case windowFacts:
		return mergeInto(&s.draft.Windows, raw, func(old []policy.Window, said observation) ([]policy.Window, bool) {
			return withWindow(old, said.window())
		})
	case circuitFacts:
		return mergeInto(s.circuitLocked(name, true), raw, mergeBreakers)
	case healthFacts:
		return mergeInto(&s.draft.Health, raw, withHealth)
	}
	return false, fmt.Errorf("unknown fact %q", f)
}

func mergeBreakers(old breaker, said Breaker) (breaker, bool) {
	if !said.newer(&old.Breaker) {
		return old, false
	}
	if said.MovedAt.Equal(old.MovedAt) {
		old.Breaker = said
		return old, true
	}
	return breaker{Breaker: said}, true
}

// mergeInto decodes what was said and puts it together with what is known.
func mergeInto[K, S any](known *K, raw json.RawMessage, merge func(K, S) (K, bool)) (news bool, err error) {
	var said S
	if err := json.Unmarshal(raw, &said); err != nil {
		return false, err
	}
	merged, news := merge(*known, said)
	if news {
		*known = merged
	}
	return news, nil
}

package keys

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// A fact names one thing that is known of a subject.
type fact string

const (
	factQuota    fact = "quota"
	factCooldown fact = "cooldown"
	factAccount  fact = "account"
	factRefused  fact = "refused"
	factLearned  fact = "learned"
	factTaken    fact = "taken"
)

// Facts of which a subject may have several are named after what they are
// about.
const (
	windowFacts  = "window/"
	circuitFacts = "circuit/"
	healthFacts  = "health/"
)

func windowFact(name string) fact    { return fact(windowFacts + name) }
func circuitFact(format string) fact { return fact(circuitFacts + format) }
func healthFact(format string) fact  { return fact(healthFacts + format) }

// factsLocked lists what is known of the subject.
func (s *subject) factsLocked() []fact {
	var all []fact
	add := func(known bool, f fact) {
		if known {
			all = append(all, f)
		}
	}
	add(s.draft.Quota != Hold{}, factQuota)
	add(s.draft.Cooldown != Hold{}, factCooldown)
	add(s.draft.Account != AccountState{}, factAccount)
	add(!s.refused.MovedAt.IsZero(), factRefused)
	add(s.draft.Learned != Learned{}, factLearned)
	add(!s.takenAt.IsZero(), factTaken)
	for _, w := range s.draft.Windows {
		add(true, windowFact(w.Name))
	}
	for i := range s.circuits {
		add(!s.circuits[i].MovedAt.IsZero(), circuitFact(s.circuits[i].format))
	}
	for _, h := range s.draft.Health {
		add(true, healthFact(h.Format))
	}
	return all
}

// maxWindows bounds how many windows are known of one subject.
const maxWindows = 64

// sound returns a window with what it lacks, or reports that it says nothing.
func sound(w policy.Window, at time.Time) (policy.Window, bool) {
	if math.IsNaN(w.Used) || math.IsNaN(w.Limit) || math.IsInf(w.Limit, 0) || w.Limit < 0 || w.Length < 0 {
		return w, false
	}
	w.Used = min(max(w.Used, 0), 1)
	if w.ObservedAt.IsZero() || w.ObservedAt.After(at) {
		w.ObservedAt = at
	}
	return w, true
}

// withWindow returns windows with what was observed of one of them. Of two
// observations the later one holds, and of two of one instant the one that
// has more used.
func withWindow(windows []policy.Window, w policy.Window) (changed []policy.Window, ok bool) {
	i := slices.IndexFunc(windows, func(o policy.Window) bool { return o.Name == w.Name })
	if i >= 0 && !supersedes(w, windows[i]) {
		return windows, false
	}
	changed = slices.Clone(windows)
	if i >= 0 {
		changed[i] = w
		return changed, true
	}
	if len(changed) >= maxWindows {
		oldest := slices.MinFunc(changed, func(a, b policy.Window) int { return a.ObservedAt.Compare(b.ObservedAt) })
		changed = slices.DeleteFunc(changed, func(o policy.Window) bool { return o.Name == oldest.Name })
	}
	return append(changed, w), true
}

func supersedes(w, old policy.Window) bool {
	return cmp.Or(
		w.ObservedAt.Compare(old.ObservedAt),
		cmp.Compare(w.Used, old.Used),
		w.Resets.Compare(old.Resets),
		cmp.Compare(w.Limit, old.Limit),
		cmp.Compare(w.Kind, old.Kind),
		cmp.Compare(w.Length, old.Length),
		cmp.Compare(w.About, old.About),
	) > 0
}

// join returns what two observations of one hold say together: the later end of
// those that were not cleared since.
func (h Hold) join(o Hold) Hold {
	cleared := later(h.Cleared, o.Cleared)
	h, o = h.since(cleared), o.since(cleared)
	if cmp.Or(o.Until.Compare(h.Until), o.At.Compare(h.At)) > 0 {
		return o
	}
	return h
}

// equal reports whether two holds say the same.
func (h Hold) equal(o Hold) bool {
	return h.Until.Equal(o.Until) && h.At.Equal(o.At) && h.Cleared.Equal(o.Cleared)
}

// since returns the hold with what was said up to an instant cleared.
func (h Hold) since(cleared time.Time) Hold {
	if !cleared.IsZero() && !h.At.After(cleared) {
		return Hold{Cleared: cleared}
	}
	h.Cleared = cleared
	return h
}

// withHealth returns scores with what an operator said of one format, unless
// something later is known.
func withHealth(scores []Health, h Health) (changed []Health, ok bool) {
	i := slices.IndexFunc(scores, func(o Health) bool { return o.Format == h.Format })
	if i < 0 {
		return append(slices.Clone(scores), h), true
	}
	if cmp.Or(h.At.Compare(scores[i].At), cmp.Compare(scores[i].Score, h.Score)) <= 0 {
		return scores, false
	}
	changed = slices.Clone(scores)
	changed[i] = h
	return changed, true
}

// newer reports whether a holds rather than b.
func (a AccountState) newer(b AccountState) bool {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Standing, b.Standing), a.Expires.Compare(b.Expires), a.Until.Compare(b.Until)) > 0
}

// newer reports whether l holds rather than m.
func (l Learned) newer(m Learned) bool {
	return cmp.Or(l.Since.Compare(m.Since), l.CandidateAt.Compare(m.CandidateAt), cmp.Compare(m.Limit, l.Limit)) > 0
}

// An observation is a window as it is written down.
type observation struct {
	Name       string           `json:"name"`
	Kind       policy.ScopeKind `json:"kind,omitzero"`
	Length     sdk.Duration     `json:"length,omitzero"`
	Used       float64          `json:"used"`
	Limit      float64          `json:"limit,omitzero"`
	Resets     time.Time        `json:"resets,omitzero"`
	ObservedAt time.Time        `json:"observed_at,omitzero"`
}

func observationOf(w policy.Window) observation {
	return observation{w.Name, w.Kind, sdk.Duration(w.Length), w.Used, w.Limit, w.Resets, w.ObservedAt}
}

func (o observation) window() policy.Window {
	return policy.Window{
		Name: o.Name, Kind: o.Kind, Length: time.Duration(o.Length),
		Used: o.Used, Limit: o.Limit, Resets: o.Resets, ObservedAt: o.ObservedAt,
	}
}

package keys

import (
	"time"

	"github.com/usherproxy/usher/policy"
)

// Facts are all that is known when one candidate is judged for one request.
// Of a subject that is nil nothing is known.
type Facts struct {
	// Request and Candidate are what the host says.
	Request   *policy.Request
	Candidate *policy.Candidate

	// Provider, Account and Key are those of the candidate, and Model is the
	// key with the candidate's model.
	Provider, Account, Key, Model *Known

	// KeyRequests and ModelRequests are how many requests the key, and the key
	// with the model, got within the last minute. They count only if a limit
	// was learned.
	KeyRequests, ModelRequests int

	// QuotaReserve is the part of each quota, from 0 to 1, that is kept.
	QuotaReserve float64

	// NoCircuits is set if breakers are turned off.
	NoCircuits bool

	// DoubtEstimate is set if the estimate of the prompt's size is not to keep
	// the request from any candidate. It is too high on purpose.
	DoubtEstimate bool
}

// subjects are those of whom something may be known, the widest first.
func (f *Facts) subjects() [4]*Known {
	return [...]*Known{f.Provider, f.Account, f.Key, f.Model}
}

// circuit returns the breaker of the key and the request's format, or nil.
func (f *Facts) circuit() *Breaker {
	if f.Key == nil || f.NoCircuits {
		return nil
	}
	return f.Key.circuit(f.Request.Format)
}

// Probe reports whether the request would be the one that probes the
// candidate, provided that the candidate is eligible.
func (f *Facts) Probe() bool {
	for _, k := range f.subjects() {
		if k != nil && k.Refused.Open {
			return true
		}
	}
	return f.circuit().open()
}

// quiet reports whether nothing of what is known can keep the candidate from
// serving at an instant or later. It may say no though nothing does.
func (f *Facts) quiet(now time.Time) bool {
	for _, k := range f.subjects() {
		if k != nil && !k.quiet(now, f.QuotaReserve) {
			return false
		}
	}
	return true
}

// Known is what is known of one subject: a provider, an account, a key, or a
// key with one model. A published Known never changes.
type Known struct {
	// Windows are the subject's limits at its provider, each as it was last
	// observed.
	Windows []policy.Window

	// Quota is until when a quota is used up, and Cooldown until when the
	// subject wants no requests.
	Quota, Cooldown Hold

	// Account is what an operator said of the subject's standing.
	Account AccountState

	// Refused is open if the provider refused the subject.
	Refused Breaker

	// Circuits are open after repeated failures. Only keys have them.
	Circuits []Circuit

	// Health is what an operator made it. Only keys have it.
	Health []Health

	// Learned is a limit that the subject seems to have. Only keys and models
	// have it.
	Learned Learned

	// latest is when the last of what can block for a time stops to, and used the
	// largest part of a quota that is used. They are set, and nothing else can
	// block, if calm.
	latest time.Time
	used   float64
	calm   bool
}

// A Hold says that a subject is to be left alone until an instant.
type Hold struct {
	Until time.Time `json:"until,omitzero"`

	// At is when that was said. What is said of instants up to Cleared does not
	// count any more.
	At      time.Time `json:"at,omitzero"`
	Cleared time.Time `json:"cleared,omitzero"`
}

// Ahead reports whether the hold has not ended.
func (h Hold) Ahead(now time.Time) bool {
	return now.Before(h.Until) && (h.Cleared.IsZero() || h.At.After(h.Cleared))
}

// A Circuit is the breaker of a key for one format.
type Circuit struct {
	Format string
	Breaker
}

// A Health is what an operator thinks of a key.
type Health struct {
	// Format is what it is about, or empty if it is about all formats.
	Format string `json:"format,omitzero"`

	// Score is from 0, which takes the key out of service, to 1.
	Score float64 `json:"score"`

	// At is when that was said.
	At time.Time `json:"at,omitzero"`
}

// A Standing is how a key or an account stands with its provider.
type Standing string

// The standings. The set is closed.
const (
	// StandingGood is the standing of everybody of whom nothing else is known.
	StandingGood Standing = "ok"
	// StandingRefreshFailed: the token could not be renewed. It may be used
	// until it expires.
	StandingRefreshFailed Standing = "refresh_failed"
	// StandingRevoked: the token is worth nothing any more.
	StandingRevoked Standing = "revoked"
	// StandingBlocked: the provider banned, suspended or deactivated the
	// account.
	StandingBlocked Standing = "blocked"
)

// Standings lists all standings.
func Standings() []Standing {
	return []Standing{StandingGood, StandingRefreshFailed, StandingRevoked, StandingBlocked}
}

// An AccountState is what an operator said of a key's or an account's standing.
// The zero value says nothing.
type AccountState struct {
	Standing Standing `json:"standing"`

	// Expires is when the token expires, or the zero time if that is not
	// known. That alone blocks nothing: the token may be renewed.
	Expires time.Time `json:"expires,omitzero"`

	// Until is when the standing is good again by itself, or the zero time if
	// somebody has to say so.
	Until time.Time `json:"until,omitzero"`

	// At is when that was said. The latest counts.
	At time.Time `json:"at,omitzero"`
}

// blocks reports whether the state keeps requests away.
func (a AccountState) blocks(now time.Time) bool {
	switch {
	case a.Standing == "" || a.Standing == StandingGood:
		return false
	case !a.Until.IsZero() && !now.Before(a.Until):
		return false
	case a.Standing == StandingRefreshFailed:
		return !now.Before(a.Expires)
	}
	return true
}

// circuit returns the breaker of a format, or nil.
func (k *Known) circuit(format string) *Breaker {
	for i := range k.Circuits {
		if k.Circuits[i].Format == format {
			return &k.Circuits[i].Breaker
		}
	}
	return nil
}

// health returns what an operator thinks of the key with a format.
func (k *Known) health(format string) float64 {
	score := 1.0
	for _, h := range k.Health {
		if h.Format == format || h.Format == "" {
			score = min(score, h.Score)
		}
	}
	return score
}

// summarize notes what quiet needs to know.
func (k *Known) summarize() {
	latest := later(k.Quota.Until, k.Cooldown.Until)
	for _, w := range k.Windows {
		switch {
		case w.Kind == "":
			k.used = max(k.used, w.Used)
		case spent(w, 0):
			latest = later(latest, resets(w))
		}
	}
	restless := k.Account.Standing != "" && k.Account.Standing != StandingGood || k.Refused.Open ||
		k.Learned.Limit > 0 || len(k.Health) > 0
	for _, c := range k.Circuits {
		restless = restless || c.Open
	}
	k.latest, k.calm = latest, !restless
}

// quiet reports whether nothing in k can block.
func (k *Known) quiet(now time.Time, reserve float64) bool {
	return k.calm && !now.Before(k.latest) && k.used+tiny < 1-reserve
}

// tiny is a part of a quota that nobody can use.
const tiny = 1e-6

// spent reports whether a window is used up but for the reserve.
func spent(w policy.Window, reserve float64) bool { return w.Used+tiny >= 1-reserve }

// resets returns when a window begins anew, or the zero time if that cannot be
// told.
func resets(w policy.Window) time.Time {
	if w.Resets.IsZero() && w.Length > 0 && !w.ObservedAt.IsZero() {
		return w.ObservedAt.Add(w.Length)
	}
	return w.Resets
}

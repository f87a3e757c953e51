package policy

import "time"

// A Subject is what a limit or a refusal of a provider is about.
type Subject string

// The subjects. The set is closed.
const (
	// SubjectKey: the key, whatever the model.
	SubjectKey Subject = "key"
	// SubjectAccount: the account of the key, and so all of its keys.
	SubjectAccount Subject = "account"
	// SubjectModel: the key, for this upstream model alone.
	SubjectModel Subject = "model"
)

// A Window is one of a provider's own limits and how much of it is used, as
// the provider told of it in an answer, or an operator in its name.
type Window struct {
	// Name tells the windows of one subject apart, such as "requests",
	// "tokens", "5h" or "weekly". It is drawn from a small set.
	Name string

	// About is what the window limits; SubjectKey if the provider does not
	// tell.
	About Subject

	// Kind is ScopeRequests or ScopeTokens if the window is a rate limit, and
	// empty if it is a plan's quota.
	Kind ScopeKind

	// Length is how long the window is, or 0 if that is not known.
	Length time.Duration

	// Limit is how much may be used within the window, or 0 if the provider
	// tells fractions only.
	Limit float64

	// Used is the part of the limit that is used, from 0 to 1. A window of
	// which this is not known is not told at all.
	Used float64

	// Resets is when the window begins anew, or the zero time if that is not
	// known.
	Resets time.Time

	// ObservedAt is when the provider said so. Of two observations of the same
	// window the later one holds, whichever arrives first.
	ObservedAt time.Time
}

package policy

import "time"

// A Candidate is one way to serve a request: a provider, a key of that
// provider, and the model name that the provider expects.
type Candidate struct {
	// ID identifies the candidate within the configuration, such as
	// "openai/k1/gpt-4o". It stays the same over requests and replicas.
	ID string

	// Provider and Key name the upstream service and the account or key to
	// use there. Key is a name that is unique within the provider, never the
	// secret itself.
	Provider, Key string

	// KeyVersion changes whenever the secret of the key does, and says nothing
	// else of it. What is known against a key ends with its version.
	KeyVersion string

	// Account names the provider's account that the key belongs to. Keys of
	// one account share its quotas. The default is "provider/key": an account
	// of its own.
	Account string

	// Model is the upstream model name.
	Model string

	// Priority ranks candidates: a lower number is preferred, and a candidate
	// of a higher number is meant to be used only when no lower one can serve.
	// The default is 0.
	Priority int

	// Weight is the candidate's share among those of equal priority, relative
	// to their weights. 0 means: only if no weighted one can serve. The
	// configuration's default is 1.
	Weight int

	// Disabled is set while the operator has taken the key out of service.
	Disabled bool

	// ContextTokens is the size of the model's context window, or 0 if the
	// configuration does not tell.
	ContextTokens int64

	// Price is what the model costs, or zero if the configuration does not tell.
	Price Price

	// Labels are the operator's own words about the candidate, such as
	// "region" = "eu". The map may be nil.
	Labels map[string]string

	// Scopes are what the request takes when this candidate serves it: those
	// of its provider, its key and its model. They come on top of
	// [Request.Scopes].
	Scopes []Scope

	// Load is what the host knows of the candidate's work.
	Load Load
}

// A Price is what a model costs, in a currency of the operator's choice, for a
// million tokens.
type Price struct {
	Input, Output float64
}

// Of returns the price of u.
func (p Price) Of(u Usage) float64 {
	return (p.Input*float64(u.InputTokens) + p.Output*float64(u.OutputTokens)) / 1e6
}

// Load is what one replica of the host knows of a candidate's work.
type Load struct {
	// InFlight is the number of attempts that run on the candidate's key now,
	// over all models.
	InFlight int

	// Latency is a moving average of the time until an attempt's first event,
	// or 0 if none has been seen.
	Latency time.Duration

	// Failures is a moving average between 0 and 1 of how many attempts
	// failed by the candidate's fault.
	Failures float64
}

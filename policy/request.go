package policy

import (
	"net/http"
	"time"
)

// A Request describes one AI request, as far as policies may see it.
type Request struct {
	// ID identifies the request. The host assigns it; it is unique over all
	// replicas and is also the ticket under which the request waits and runs.
	ID string

	// Format is the API shape that the caller speaks: "openai", "anthropic"
	// or "gemini".
	Format string

	// Operation is the kind of work. It takes the values of the OpenTelemetry
	// attribute gen_ai.operation.name where that has one, such as "chat" or
	// "embeddings".
	Operation string

	// Model is the public model name that the caller asked for.
	Model string

	// Stream says whether the caller asked for a stream of events.
	Stream bool

	// Caller is who sent the request.
	Caller Caller

	// Priority orders waiting requests; a higher one is served first. The
	// host has clamped it to what the caller may ask for. The default is 0.
	Priority int

	// Arrival orders requests of equal priority: a smaller one came earlier.
	// The host counts arrivals; the number stays with the request through
	// waits, failovers and restarts of the policy.
	Arrival int64

	// InputTokens is the estimated size of the prompt, in tokens. It is an
	// upper-bound guess from the size of the body, not a count.
	InputTokens int64

	// MinInputTokens is a lower-bound guess of the same: a prompt that does
	// not fit a context window by this measure does not fit.
	MinInputTokens int64

	// MaxOutputTokens is the output limit that the caller asked for, or 0 if
	// it asked for none.
	MaxOutputTokens int64

	// Affinity names the session or prompt prefix that the request belongs
	// to, or is empty. Requests with the same Affinity profit from the same
	// key.
	Affinity string

	// ReceivedAt is when the host had read the request, and Deadline when it
	// gives up on it. Deadline is the zero time if there is none.
	ReceivedAt, Deadline time.Time

	// WaitingSince is when the request began to wait for the lease that it asks
	// for now, and the zero time before. It stays the same while the request is
	// asked for again, such as by another process of the policy or with other
	// candidates, so a policy that bounds waits counts from here.
	WaitingSince time.Time

	// Scopes are what the request takes whoever serves it: those of its
	// caller, its group and the fleet. See also [Candidate.Scopes].
	Scopes []Scope

	// Header holds the request headers that the operator granted to the
	// plugin, under their canonical names. It is nil if there are none.
	Header http.Header

	// Body holds the body if the operator granted it, else nil.
	Body []byte
}

// A Caller is who sent a request.
type Caller struct {
	// ID names the caller; it is never its credential. It is empty if the
	// site does not identify callers.
	ID string

	// Group is the tenant or team of the caller, or empty.
	Group string
}

// Tokens returns the number of tokens that the request may use as far as can
// be told beforehand: its estimated input and the output that it asked for.
// It is what a token scope reserves before the real usage is known.
func (r *Request) Tokens() int64 { return r.InputTokens + r.MaxOutputTokens }

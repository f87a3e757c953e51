package policy

import (
	"context"
	"slices"
	"time"
)

// An Outcome tells how a request ended. It is what releases a lease.
type Outcome struct {
	// Disposition says how the last attempt under the lease ended.
	Disposition Disposition

	// Usage is what the request used, or nil if that is not known. Unknown
	// usage is not zero usage: what was reserved stays spent.
	Usage *Usage

	// Duration is the time that the lease was used for.
	Duration time.Duration
}

// Usage counts tokens as the provider reported them.
type Usage struct {
	// InputTokens and OutputTokens are the totals, including the parts below.
	InputTokens, OutputTokens int64

	// CachedTokens is the part of the input that came from a prompt cache,
	// and ReasoningTokens the part of the output that was reasoning.
	CachedTokens, ReasoningTokens int64
}

// Total returns input and output together.
func (u Usage) Total() int64 { return u.InputTokens + u.OutputTokens }

// An Observer hears how attempts ended. Selectors and Admitters implement it
// if they want to learn.
type Observer interface {
	// Observe is called once for each attempt, soon after its end. Calls may
	// arrive in batches and out of order. It should not block.
	Observe(ctx context.Context, res AttemptResult)
}

// An AttemptResult tells how one attempt ended.
type AttemptResult struct {
	// RequestID and Attempt name the attempt.
	RequestID string
	Attempt   int

	// Candidate is the one that was tried.
	Candidate Candidate

	// Format and Operation are those of the request.
	Format, Operation string

	// Disposition says how it ended.
	Disposition Disposition

	// Status is the upstream's HTTP status, or 0 if there was none.
	Status int

	// Until is set for RateLimited and QuotaExhausted if the provider said
	// when to come back.
	Until time.Time

	// About is what the provider's refusal is about: for RateLimited,
	// QuotaExhausted and AuthFailed, the key alone, its whole account, or the
	// key with this model. It is empty if the provider does not tell, and for
	// other dispositions.
	About Subject

	// Windows are the provider's own limits, as its answer told of them.
	Windows []Window

	// Usage is what the attempt used, or nil if that is not known.
	Usage *Usage

	// FirstEvent is the time from sending the request to the first byte of
	// the answer's content, or 0 if there was none; Duration the time to its
	// last byte.
	FirstEvent, Duration time.Duration

	// EndedAt is when the attempt ended.
	EndedAt time.Time
}

// A Disposition is how an attempt ended.
type Disposition string

// The dispositions. The set is closed.
const (
	// OK: an answer of success that ended well.
	OK Disposition = "ok"
	// ClientFault: the caller's own mistake. Says nothing of the candidate.
	ClientFault Disposition = "client_fault"
	// ContextLength: the prompt is too long for this model.
	ContextLength Disposition = "context_length"
	// RateLimited: the provider asks for fewer requests for a while.
	RateLimited Disposition = "rate_limited"
	// QuotaExhausted: a budget or plan window of the account is used up.
	QuotaExhausted Disposition = "quota_exhausted"
	// AuthFailed: the provider refused our key.
	AuthFailed Disposition = "auth_failed"
	// Overloaded: the provider says that it has too much to do.
	Overloaded Disposition = "overloaded"
	// UpstreamError: any other failure of the provider.
	UpstreamError Disposition = "upstream_error"
	// ConnectFailed: no connection could be made.
	ConnectFailed Disposition = "connect_failed"
	// Timeout: the provider took longer than it may.
	Timeout Disposition = "timeout"
	// ClientGone: the caller left. Says nothing of the candidate.
	ClientGone Disposition = "client_gone"
	// Denied: a policy or the queue turned the request away.
	Denied Disposition = "denied"
)

var dispositions = []Disposition{
	OK, ClientFault, ContextLength, RateLimited, QuotaExhausted, AuthFailed,
	Overloaded, UpstreamError, ConnectFailed, Timeout, ClientGone, Denied,
}

// Dispositions lists all dispositions.
func Dispositions() []Disposition { return slices.Clone(dispositions) }

// Valid reports whether d is one of [Dispositions].
func (d Disposition) Valid() bool { return slices.Contains(dispositions, d) }

// Failure reports whether d counts against the health of the candidate.
func (d Disposition) Failure() bool {
	switch d {
	case Overloaded, UpstreamError, ConnectFailed, Timeout:
		return true
	}
	return false
}

// Failover reports whether another candidate may be tried after d.
func (d Disposition) Failover() bool {
	switch d {
	case ContextLength, RateLimited, QuotaExhausted, AuthFailed:
		return true
	}
	return d.Failure()
}

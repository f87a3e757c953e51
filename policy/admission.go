package policy

import (
	"context"
	"fmt"
	"time"
)

// An Admitter decides whether a request may start, on which of its candidates,
// and when.
type Admitter interface {
	// Admit blocks until the request may start, and returns the lease under
	// which it runs. If the request must not start, Admit returns a
	// [*Rejection]. If ctx ends first, Admit forgets the request and returns
	// ctx.Err().
	//
	// The lease is held over all scopes of the request and of the one
	// candidate that it names, or Admit must not return it.
	Admit(ctx context.Context, req *AdmitRequest) (Lease, error)
}

// An AdmitRequest is what an [Admitter] is asked.
type AdmitRequest struct {
	// Request is the request to admit. Its ID is its ticket.
	Request *Request

	// Attempt counts the leases that the request asks for, from 1. A request
	// whose attempt failed releases its lease and asks again with the next
	// number, the remaining candidates, and its old place in line.
	Attempt int

	// Candidates are those that may serve the request, best first. There is
	// at least one.
	Candidates []Candidate

	// NoWait is set where Admit must answer at once: it then admits or
	// rejects. It is set for every admission policy of a chain but the last.
	NoWait bool

	// Revoke, if it is not nil, is to be called if the policy can no longer
	// stand for the lease that it gave, such as when it lost its store for so
	// long that others hold the same room by now. The host then ends the
	// request as soon as it can, and releases the lease as ever. It does not
	// block, and only its first call counts.
	Revoke func(why Reason)

	// Waiting, if it is not nil, is to be called when the request begins to
	// wait, and may be called again when its place changes. The first in line
	// has position 1. It does not block.
	Waiting func(position int)
}

// MayWait is to be called when the request cannot start at once because of why.
// It tells the host that the request begins to wait at a position, of which the
// first is 1. Where the request must not wait, it returns the [*Rejection] for
// Admit to return.
func (r *AdmitRequest) MayWait(position int, why Reason) error {
	if r.NoWait {
		return Reject(why, 0)
	}
	if r.Waiting != nil {
		r.Waiting(position)
	}
	return nil
}

// A Lease is the right to run one request.
type Lease interface {
	// Candidate returns the index in [AdmitRequest.Candidates] of the
	// candidate that may serve the request.
	Candidate() int

	// Release ends the lease. The host calls it exactly once for each lease,
	// also when the client left or the upstream failed.
	Release(ctx context.Context, out Outcome) error
}

// LeaseFunc adapts a function to a [Lease] on the first candidate.
type LeaseFunc func(ctx context.Context, out Outcome) error

// Candidate returns 0.
func (f LeaseFunc) Candidate() int { return 0 }

// Release calls f.
func (f LeaseFunc) Release(ctx context.Context, out Outcome) error { return f(ctx, out) }

// LeaseOn returns a [Lease] on the candidate of index i that f releases.
func LeaseOn(i int, f LeaseFunc) Lease { return lease{i, f} }

type lease struct {
	candidate int
	LeaseFunc
}

func (l lease) Candidate() int { return l.candidate }

// A Rejection is the error with which an [Admitter] turns a request away.
type Rejection struct {
	// Reason says why.
	Reason Reason

	// RetryAfter is how long a caller should wait before it tries again, or 0
	// if the policy cannot tell.
	RetryAfter time.Duration
}

// Reject returns a [*Rejection].
func Reject(reason Reason, retryAfter time.Duration) error {
	return &Rejection{Reason: reason, RetryAfter: retryAfter}
}

// Error names the reason.
func (r *Rejection) Error() string { return fmt.Sprintf("request rejected: %s", r.Reason) }

// A Restorer is an [Admitter] that can go on where another instance of it
// stopped, such as one whose process was killed. An Admitter whose leases live
// in its own memory should be one: otherwise it believes, after a restart of
// its process, that nothing runs.
type Restorer interface {
	Admitter

	// Restore tells a new instance what the host holds: the requests that run
	// under a lease of the old instance, and those that wait, in their order
	// of arrival. It is called before any other method, at most once. It
	// returns a lease for each of running, in the same order, and these may
	// exceed a limit that was lowered meanwhile.
	//
	// The instance keeps the places of waiting in line. The host asks for
	// each of them again with Admit, under the same ticket and attempt, and
	// with a context that has ended if the caller left meanwhile.
	Restore(ctx context.Context, running []Held, waiting []AdmitRequest) ([]Lease, error)
}

// Held is a request that runs under a lease.
type Held struct {
	// Request and Attempt are those of the [AdmitRequest] that was admitted.
	Request *Request
	Attempt int

	// Candidate is the one that serves the request.
	Candidate Candidate

	// Revoke is as [AdmitRequest.Revoke].
	Revoke func(why Reason)
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/usherproxy/usher/policy"
)

const (
	// fleetLimit is the limit of the one scope of a usual request, for
	// admitters that enforce scopes. Others have a limit of their own.
	fleetLimit = 4

	// unlimited is the number of running requests from which on a policy
	// counts as one without a limit.
	unlimited = 1000
)

// A room is an [policy.Admitter] under test, and how the checks speak of it.
type room struct {
	*world
	admitter policy.Admitter
	calls    sync.WaitGroup // goroutines inside of Admit
}

// newRoom returns a room whose calls have ended when the test has.
func newRoom(t T, a policy.Admitter) *room {
	r := &room{world: newWorld(), admitter: a}
	t.Cleanup(func() { waitFor(t, &r.calls, "Admit after the end of its context") })
	return r
}

// An answer is what Admit returned.
type answer struct {
	lease policy.Lease
	err   error
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("a lease on candidate %d", a.lease.Candidate())
}

// usual returns a request for whatever room there is.
func (r *room) usual() *policy.AdmitRequest {
	return r.ask(r.request(r.scope("fleet", fleetLimit)), candidate("k1"), candidate("k2"))
}

// ask returns the question whether req may start on one of candidates.
func (r *room) ask(req *policy.Request, candidates ...policy.Candidate) *policy.AdmitRequest {
	return &policy.AdmitRequest{Request: req, Attempt: 1, Candidates: candidates}
}

// admit calls Admit and checks what must hold for every answer.
func (r *room) admit(ctx context.Context, t T, req *policy.AdmitRequest) answer {
	t.Helper()
	lease, err := r.admitter.Admit(ctx, req)
	rejection, rejected := errors.AsType[*policy.Rejection](err)
	switch {
	case err == nil && lease == nil:
		err = errors.New("neither a lease nor an error")
		t.Errorf("Admit returned neither a lease nor an error")
	case err == nil && (lease.Candidate() < 0 || lease.Candidate() >= len(req.Candidates)):
		t.Errorf("Admit returned a lease on candidate %d of %d", lease.Candidate(), len(req.Candidates))
	case rejected && !rejection.Reason.Valid():
		t.Errorf("Admit rejected for %q, which is none of policy.Reasons", rejection.Reason)
	case rejected && rejection.RetryAfter < 0:
		t.Errorf("Admit rejected with RetryAfter %s", rejection.RetryAfter)
	case err != nil && !rejected && !endedBy(ctx, err):
		t.Errorf("Admit failed: %v; want a lease, a *policy.Rejection, or the error of an ended context", err)
	}
	return answer{lease, err}
}

// endedBy reports whether err is that of ctx. Another process may notice a
// deadline a moment earlier than ctx does.
func endedBy(ctx context.Context, err error) bool {
	_, hasDeadline := ctx.Deadline()
	return ctx.Err() != nil && errors.Is(err, ctx.Err()) || hasDeadline && errors.Is(err, context.DeadlineExceeded)
}

// start calls Admit and returns where its answer will be.
func (r *room) start(ctx context.Context, t T, req *policy.AdmitRequest) <-chan answer {
	answers := make(chan answer, 1)
	r.calls.Go(func() { answers <- r.admit(ctx, t, req) })
	return answers
}

// now asks for an answer at once, and returns a lease, or nil if the request
// was rejected.
func (r *room) now(t T, req *policy.AdmitRequest) policy.Lease {
	t.Helper()
	req.NoWait = true
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	a := receive(t, r.start(ctx, t, req), "Admit with NoWait")
	if ctx.Err() != nil {
		t.Fatalf("Admit with NoWait waited")
	}
	if _, rejected := errors.AsType[*policy.Rejection](a.err); a.err != nil && !rejected {
		t.Fatalf("Admit with NoWait: %v; want a lease or a *policy.Rejection", a.err)
	}
	return a.lease
}

// admitted asks for a lease that there must be room for.
func (r *room) admitted(t T, req *policy.AdmitRequest, why string) policy.Lease {
	t.Helper()
	lease := r.now(t, req)
	if lease == nil {
		t.Fatalf("rejected, although %s", why)
	}
	return lease
}

// rejected asks for a lease that there must be no room for.
func (r *room) rejected(t T, req *policy.AdmitRequest, why string) {
	t.Helper()
	if lease := r.now(t, req); lease != nil {
		t.Fatalf("admitted on candidate %d, although %s", lease.Candidate(), why)
	}
}

// fill takes all room with usual requests, and returns their leases. It skips
// the test if the policy sets no limit.
func (r *room) fill(t T) []policy.Lease {
	t.Helper()
	var leases []policy.Lease
	for len(leases) < unlimited {
		lease := r.now(t, r.usual())
		if lease == nil {
			if len(leases) == 0 {
				t.Fatalf("rejected, although nothing runs")
			}
			return leases
		}
		leases = append(leases, lease)
	}
	t.Skipf("needs a policy with a limit; %d requests run", len(leases))
	return nil
}

// wait starts a request for which there is no room, and returns once it waits.
func (r *room) wait(ctx context.Context, t T, req *policy.AdmitRequest) <-chan answer {
	t.Helper()
	positions := make(chan int, 1)
	req.Waiting = func(position int) {
		select {
		case positions <- position:
		default: // the first one is enough
		}
	}
	answers := r.start(ctx, t, req)
	select {
	case position := <-positions:
		if position < 1 {
			t.Errorf("waits at position %d; the first in line has 1", position)
		}
	case a := <-answers:
		t.Fatalf("did not wait: %s", a)
	case <-time.After(Patience):
		t.Fatalf("Admit neither answered nor called Waiting")
	}
	return answers
}

// gets waits for the lease of a request that waits.
func gets(t T, answers <-chan answer, why string) policy.Lease {
	t.Helper()
	a := receive(t, answers, why)
	if a.err != nil {
		t.Fatalf("%s: %v", why, a.err)
	}
	return a.lease
}

func receive(t T, answers <-chan answer, what string) answer {
	t.Helper()
	select {
	case a := <-answers:
		return a
	case <-time.After(Patience):
		t.Fatalf("%s: no answer within %s", what, Patience)
		return answer{}
	}
}

// stillWaits fails if a request has been answered.
func stillWaits(t T, answers <-chan answer, why string) {
	t.Helper()
	select {
	case a := <-answers:
		t.Fatalf("%s, although %s", a, why)
	default:
	}
}

// release ends leases as the host does after a success.
func release(t T, leases ...policy.Lease) {
	t.Helper()
	for _, lease := range leases {
		releaseWith(t, lease, policy.Outcome{
			Disposition: policy.OK,
			Usage:       &policy.Usage{InputTokens: 90, OutputTokens: 40},
			Duration:    time.Second,
		})
	}
}

func releaseWith(t T, lease policy.Lease, out policy.Outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := lease.Release(ctx, out); err != nil {
		t.Errorf("release: %v", err)
	}
}

package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/policy"
)

// patience is how long a test waits for what has to happen.
const patience = 20 * time.Second

// A suite is one test and its store.
type suite struct {
	*testing.T
	store   fifo.Store
	rules   fifo.Rules
	arrival atomic.Int64
}

// request returns a request for the given scopes, with a candidate that has none
// of its own. It arrives after all before.
func (s *suite) request(scopes ...policy.Scope) *policy.AdmitRequest {
	n := s.arrival.Add(1)
	return &policy.AdmitRequest{
		Attempt:    1,
		Request:    &policy.Request{ID: fmt.Sprint("r", n), Arrival: n, Scopes: scopes},
		Candidates: []policy.Candidate{{ID: "any"}},
	}
}

// choice returns a request for any of the candidates with the given scopes.
func (s *suite) choice(candidates ...[]policy.Scope) *policy.AdmitRequest {
	req := s.request()
	req.Candidates = nil
	for i, scopes := range candidates {
		req.Candidates = append(req.Candidates, policy.Candidate{ID: fmt.Sprint("c", i), Scopes: scopes})
	}
	return req
}

func concurrency(id string, limit int64) policy.Scope {
	return policy.Scope{ID: id, Kind: policy.ScopeConcurrency, Limit: limit}
}

func requests(id string, limit int64, window time.Duration) policy.Scope {
	return policy.Scope{ID: id, Kind: policy.ScopeRequests, Limit: limit, Window: window}
}

func tokens(id string, limit int64) policy.Scope {
	return policy.Scope{ID: id, Kind: policy.ScopeTokens, Limit: limit, Window: time.Hour}
}

// A call is a call of Admit.
type call struct {
	s      *suite
	req    *policy.AdmitRequest
	cancel context.CancelFunc
	queued chan struct{} // closed when it begins to wait
	done   chan struct{} // closed when Admit has returned
	lease  policy.Lease
	err    error
}

// ask calls Admit.
func (s *suite) ask(req *policy.AdmitRequest) *call {
	ctx, cancel := context.WithCancel(context.Background())
	s.Cleanup(cancel)
	c := &call{s: s, req: req, cancel: cancel, queued: make(chan struct{}), done: make(chan struct{})}
	var told bool
	req.Waiting = func(int) {
		if !told {
			close(c.queued)
		}
		told = true
	}
	rules := s.rules
	go func() {
		defer close(c.done)
		c.lease, c.err = s.store.Admit(ctx, req, rules)
	}()
	return c
}

// runs asks for what must start at once, and returns its lease.
func (s *suite) runs(req *policy.AdmitRequest) policy.Lease {
	s.Helper()
	return s.ask(req).admitted()
}

// waits asks for what must wait, and returns when it does.
func (s *suite) waits(req *policy.AdmitRequest) *call {
	s.Helper()
	c := s.ask(req)
	c.hasWaited()
	return c
}

// hasWaited returns when the call waits, even if it has not for long.
func (c *call) hasWaited() {
	c.s.Helper()
	select {
	case <-c.queued:
		return
	case <-c.done:
	case <-time.After(patience):
		c.s.Fatalf("%s: is not told that it waits", c.req.Request.ID)
	}
	select {
	case <-c.queued:
	default:
		c.s.Fatalf("%s: Admit = %v, %v, want it to wait", c.req.Request.ID, c.lease, c.err)
	}
}

// result returns what Admit returned.
func (c *call) result() (policy.Lease, error) {
	c.s.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		c.s.Fatalf("%s: Admit does not return", c.req.Request.ID)
	}
	return c.lease, c.err
}

// admitted returns the lease that the call must get.
func (c *call) admitted() policy.Lease {
	c.s.Helper()
	lease, err := c.result()
	if err != nil {
		c.s.Fatalf("%s: Admit = %v, want a lease", c.req.Request.ID, err)
	}
	return lease
}

// refused checks that the call is refused, and returns when to retry.
func (c *call) refused(reason policy.Reason) time.Duration {
	c.s.Helper()
	lease, err := c.result()
	r, ok := errors.AsType[*policy.Rejection](err)
	if !ok || r.Reason != reason || lease != nil {
		c.s.Fatalf("%s: Admit = %v, %v, want %s", c.req.Request.ID, lease, err, reason)
	}
	return r.RetryAfter
}

// stillWaits checks that the call has not returned.
func (c *call) stillWaits() {
	c.s.Helper()
	select {
	case <-c.done:
		c.s.Fatalf("%s: Admit = %v, %v, want it to wait", c.req.Request.ID, c.lease, c.err)
	default:
	}
}

// leave cancels the call and waits for its end.
func (c *call) leave() {
	c.s.Helper()
	c.cancel()
	if lease, err := c.result(); !errors.Is(err, context.Canceled) {
		c.s.Fatalf("%s: Admit = %v, %v, want %v", c.req.Request.ID, lease, err, context.Canceled)
	}
}

// release ends leases that used nothing.
func (s *suite) release(leases ...policy.Lease) {
	s.Helper()
	s.settle(&policy.Usage{}, leases...)
}

func (s *suite) settle(usage *policy.Usage, leases ...policy.Lease) {
	s.Helper()
	for _, l := range leases {
		if err := l.Release(context.Background(), policy.Outcome{Disposition: policy.OK, Usage: usage}); err != nil {
			s.Fatalf("Release: %v", err)
		}
	}
}

// free checks that all of the limit of the concurrency scopes can be had.
func (s *suite) free(scopes ...policy.Scope) {
	s.Helper()
	for _, scope := range scopes {
		var leases []policy.Lease
		for range scope.Limit {
			req := s.request(scope)
			req.NoWait = true
			leases = append(leases, s.runs(req))
		}
		req := s.request(scope)
		req.NoWait = true
		if lease, err := s.ask(req).result(); err == nil {
			s.release(lease)
			s.Fatalf("%s: more than %d leases", scope.ID, scope.Limit)
		}
		s.release(leases...)
	}
}

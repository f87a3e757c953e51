package load

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A Fault is something that a wrong store does. A checker that does not find it is wrong.
type Fault string

// The faults.
const (
	FaultOver  Fault = "over"  // some who would wait run
	FaultOrder Fault = "order" // the last one who waits is served first
	FaultLeak  Fault = "leak"  // some releases are forgotten
	FaultLost  Fault = "lost"  // some are told late that they run
	FaultRate  Fault = "rate"  // windows are not looked at
	FaultRank  Fault = "rank"  // requests run on the last candidate that has room
)

// FaultLate is how late.
const FaultLate = 6 * time.Second

// often is which ones of all are hit.
const often = 40

// wrap returns a policy with the fault.
func (f Fault) wrap(a policy.Admitter) policy.Admitter {
	if f == "" {
		return a
	}
	return &faulty{Admitter: a, fault: f}
}

type faulty struct {
	policy.Admitter
	fault Fault

	mu      sync.Mutex // guards all below
	n       int
	waiting []*stolen // in order of their arrival
}

// A stolen lease goes to somebody else than the store thinks.
type stolen struct {
	kind  string
	lease chan result
}

type result struct {
	lease policy.Lease
	err   error
}

// hit reports whether this one is to be hit.
func (f *faulty) hit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	return f.n%often == 0
}

func (f *faulty) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	switch f.fault {
	case FaultOver:
		return f.over(ctx, req)
	case FaultOrder:
		return f.order(ctx, req)
	case FaultRate:
		return f.rate(ctx, req)
	case FaultRank:
		return f.rank(ctx, req)
	}
	lease, err := f.Admitter.Admit(ctx, req)
	if err != nil || !f.hit() {
		return lease, err
	}
	if f.fault == FaultLeak {
		return policy.LeaseOn(lease.Candidate(), func(context.Context, policy.Outcome) error { return nil }), nil
	}
	time.Sleep(FaultLate)
	return lease, nil
}

// over lets some run as soon as they wait.
func (f *faulty) over(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, waits, done := *req, make(chan struct{}), make(chan result, 1)
	var once sync.Once
	r.Waiting = func(position int) {
		req.Waiting(position)
		once.Do(func() { close(waits) })
	}
	go func() {
		lease, err := f.Admitter.Admit(ctx, &r)
		done <- result{lease, err}
	}()
	select {
	case <-waits:
	case res := <-done:
		return res.lease, res.err
	}
	if !f.hit() {
		res := <-done
		return res.lease, res.err
	}
	cancel()
	if res := <-done; res.err == nil {
		return res.lease, nil
	}
	return policy.LeaseFunc(func(context.Context, policy.Outcome) error { return nil }), nil
}

// order gives each lease to the last of those who wait for the same.
func (f *faulty) order(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	s := &stolen{kind: kindOf(req), lease: make(chan result, 1)}
	f.mu.Lock()
	f.waiting = append(f.waiting, s)
	f.mu.Unlock()
	ctx = context.WithoutCancel(ctx) // its place serves another when it has gone
	go func() {
		lease, err := f.Admitter.Admit(ctx, req)
		f.mu.Lock()
		defer f.mu.Unlock()
		to := s
		for _, o := range slices.Backward(f.waiting) {
			if err == nil && o.kind == s.kind {
				to = o
				break
			}
		}
		if !slices.Contains(f.waiting, to) { // has its lease from another
			if err == nil {
				_ = lease.Release(ctx, policy.Outcome{})
			}
			return
		}
		f.waiting = slices.DeleteFunc(f.waiting, func(o *stolen) bool { return o == to })
		to.lease <- result{lease, err}
	}()
	res := <-s.lease
	return res.lease, res.err
}

// rate takes the windows from requests.
func (f *faulty) rate(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	r := *req
	r.Candidates = slices.Clone(r.Candidates)
	for i, c := range r.Candidates {
		r.Candidates[i].Scopes = slices.DeleteFunc(slices.Clone(c.Scopes), func(s policy.Scope) bool { return s.Window > 0 })
	}
	return f.Admitter.Admit(ctx, &r)
}

// rank turns the candidates of requests.
func (f *faulty) rank(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	r := *req
	r.Candidates = slices.Clone(r.Candidates)
	slices.Reverse(r.Candidates)
	lease, err := f.Admitter.Admit(ctx, &r)
	if err != nil {
		return nil, err
	}
	return policy.LeaseOn(len(r.Candidates)-1-lease.Candidate(), lease.Release), nil
}

// kindOf names what a request needs.
func kindOf(req *policy.AdmitRequest) string {
	var name strings.Builder
	for _, s := range req.Request.Scopes {
		name.WriteString(s.ID + " ")
	}
	for _, c := range req.Candidates {
		name.WriteString(c.ID + ",")
	}
	return name.String()
}

package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/usherproxy/usher/policy"
)

// line admits requests in their order of arrival as long as no concurrency
// scope of theirs is full. Nobody passes anybody.
type line struct {
	mu    sync.Mutex
	used  map[string]int64 // by scope
	queue []*place
}

// A place is kept for a restored request before it asks again.
type place struct {
	req     *policy.AdmitRequest
	granted chan policy.Lease
}

func newLine() *line { return &line{used: make(map[string]int64)} }

func (l *line) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	p := l.enter(req)
	if req.NoWait && l.leave(p) {
		return nil, policy.Reject(policy.ReasonQueueFull, time.Second)
	}
	select {
	case lease := <-p.granted:
		return lease, nil
	case <-ctx.Done():
		if l.leave(p) {
			return nil, ctx.Err()
		}
		return <-p.granted, nil // at the same moment
	}
}

// enter finds or takes the place of a request.
func (l *line) enter(req *policy.AdmitRequest) *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.queue, func(p *place) bool {
		return p.req.Request.ID == req.Request.ID && p.req.Attempt == req.Attempt
	})
	if i < 0 {
		i = len(l.queue)
		l.queue = append(l.queue, &place{granted: make(chan policy.Lease, 1)})
	}
	p := l.queue[i]
	p.req = req
	slices.SortStableFunc(l.queue, func(a, b *place) int {
		return cmp.Compare(a.req.Request.Arrival, b.req.Request.Arrival)
	})
	l.moveLocked()
	return p
}

// leave gives a place up, and reports whether it was still in line.
func (l *line) leave(p *place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, p)
	if i < 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	l.moveLocked()
	return true
}

// moveLocked admits from the head of the line, and tells the rest their places.
func (l *line) moveLocked() {
	for len(l.queue) > 0 {
		p := l.queue[0]
		i := slices.IndexFunc(p.req.Candidates, func(c policy.Candidate) bool { return l.freeLocked(p.req.Request, c) })
		if i < 0 || p.req.Waiting == nil { // full, or restored and not asked for again
			break
		}
		l.queue = l.queue[1:]
		p.granted <- l.leaseLocked(p.req.Request, p.req.Candidates[i], i)
	}
	for i, p := range l.queue {
		if p.req.Waiting != nil {
			p.req.Waiting(i + 1)
		}
	}
}

func (l *line) freeLocked(r *policy.Request, c policy.Candidate) bool {
	return !slices.ContainsFunc(scopes(r, c), func(s policy.Scope) bool { return l.used[s.ID] >= s.Limit })
}

func (l *line) leaseLocked(r *policy.Request, c policy.Candidate, i int) policy.Lease {
	for _, s := range scopes(r, c) {
		l.used[s.ID]++
	}
	return policy.LeaseOn(i, func(context.Context, policy.Outcome) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, s := range scopes(r, c) {
			l.used[s.ID]--
		}
		l.moveLocked()
		return nil
	})
}

func scopes(r *policy.Request, c policy.Candidate) []policy.Scope {
	return slices.Concat(r.Scopes, c.Scopes)
}

func (l *line) Restore(_ context.Context, running []policy.Held, waiting []policy.AdmitRequest) ([]policy.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	leases := make([]policy.Lease, len(running))
	for i, h := range running {
		leases[i] = l.leaseLocked(h.Request, h.Candidate, 0)
	}
	for i := range waiting {
		l.queue = append(l.queue, &place{req: &waiting[i], granted: make(chan policy.Lease, 1)})
	}
	return leases, nil
}

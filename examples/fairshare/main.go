// Command fairshare is an admission policy that shares a number of places
// fairly among groups: a group that sends much does not keep one waiting that
// sends little, and each gets tokens in proportion to its weight. What a group
// does not use is free for the others.
package main

import (
	"context"
	"sync"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

type config struct {
	// Max is how many requests run at a time.
	Max int `json:"max"`

	// Weights are the shares of groups. A group that is not named has 1.
	Weights map[string]float64 `json:"weights"`
}

var defaults = config{Max: 8}

func (c config) Validate() error {
	if c.Max < 1 {
		return sdk.OptionError("max", "must be at least 1, not %d", c.Max)
	}
	for group, w := range c.Weights {
		if w <= 0 {
			return sdk.OptionError("weights."+group, "must be above 0, not %g", w)
		}
	}
	return nil
}

func (c config) weight(group string) float64 {
	if w, ok := c.Weights[group]; ok {
		return w
	}
	return 1
}

// key names one admission of a request.
type key struct {
	id      string
	attempt int
}

// place is a request that waits.
type place struct {
	ticket
	ready chan policy.Lease // receives once; nil until the request is asked for
}

// fairshare is the policy. It keeps the places in line of a restart.
type fairshare struct {
	max int

	mu      sync.Mutex // guards what follows
	queue   *queue[key]
	waiting map[key]*place
	running int
}

func newFairshare(c config) *fairshare {
	return &fairshare{max: c.Max, queue: newQueue[key](c.weight), waiting: map[key]*place{}}
}

func ticketOf(r *policy.Request) ticket {
	return ticket{group: r.Caller.Group, cost: float64(max(r.Tokens(), 1)), priority: r.Priority, arrival: r.Arrival}
}

// Admit waits for the turn of the request.
func (f *fairshare) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	k := key{req.Request.ID, req.Attempt}
	ready := f.enter(k, req)
	if req.NoWait && f.leave(k) {
		return nil, policy.Reject(policy.ReasonConcurrency, 0)
	}
	select {
	case lease := <-ready:
		return lease, nil
	case <-ctx.Done():
		if f.leave(k) {
			return nil, ctx.Err()
		}
		return <-ready, nil // its turn came at the same moment
	}
}

// enter puts a request in line, or finds it there after a restart.
func (f *fairshare) enter(k key, req *policy.AdmitRequest) <-chan policy.Lease {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.waiting[k]
	if !ok {
		p = &place{ticket: ticketOf(req.Request)}
		f.waiting[k] = p
		f.queue.add(k, p.ticket)
	}
	p.ready = make(chan policy.Lease, 1)
	f.moveLocked()
	if f.waiting[k] == p && !req.NoWait && req.Waiting != nil {
		req.Waiting(f.queue.position(k, p.group))
	}
	return p.ready
}

// leave takes a request out of line, and reports whether it was still there.
func (f *fairshare) leave(k key) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.waiting[k]
	if !ok {
		return false
	}
	delete(f.waiting, k)
	f.queue.remove(k, p.group)
	return true
}

// moveLocked starts requests as long as there are places.
func (f *fairshare) moveLocked() {
	for f.running < f.max {
		k, ok := f.queue.next(func(k key) bool { return f.waiting[k].ready != nil })
		if !ok {
			return
		}
		p := f.waiting[k]
		delete(f.waiting, k)
		f.running++
		p.ready <- f.lease(p.ticket)
	}
}

func (f *fairshare) lease(t ticket) policy.Lease {
	return policy.LeaseFunc(func(_ context.Context, out policy.Outcome) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		cost := t.cost
		if out.Usage != nil {
			cost = float64(out.Usage.Total())
		}
		f.running--
		f.queue.end(t, cost)
		f.moveLocked()
		return nil
	})
}

// Restore takes over what runs and what waits.
func (f *fairshare) Restore(_ context.Context, running []policy.Held, waiting []policy.AdmitRequest) ([]policy.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	leases := make([]policy.Lease, len(running))
	for i, h := range running {
		t := ticketOf(h.Request)
		f.running++
		f.queue.run(t)
		leases[i] = f.lease(t)
	}
	for _, w := range waiting {
		k := key{w.Request.ID, w.Attempt}
		f.waiting[k] = &place{ticket: ticketOf(w.Request)}
		f.queue.add(k, f.waiting[k].ticket)
	}
	return leases, nil
}

func build(_ context.Context, c config) (sdk.Policies, error) {
	return sdk.Policies{Admission: newFairshare(c)}, nil
}

func main() { sdk.Serve("fairshare", defaults, build) }

var _ policy.Restorer = (*fairshare)(nil)

package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// attachWithin is how long a restored place, or a lease that it led to, is kept
// for a host that does not ask for it.
const attachWithin = 10 * time.Second

// Restore takes over what runs and waits elsewhere. It does not wait for the
// database: what it takes over is true in any case.
func (s *Store) Restore(_ context.Context, run []policy.Held, wait []policy.AdmitRequest, rules queue.Rules) ([]policy.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var runs, waits []*call
	for _, h := range run {
		runs = append(runs, newCall(&policy.AdmitRequest{
			Request: h.Request, Attempt: h.Attempt, Candidates: []policy.Candidate{h.Candidate}, Revoke: h.Revoke,
		}, rules))
	}
	for i := range wait {
		waits = append(waits, newCall(&wait[i], rules))
	}
	if err := s.restorable(append(runs, waits...)); err != nil {
		return nil, err
	}
	leases := make([]policy.Lease, len(runs))
	for i, c := range runs {
		s.start(c, 0)
		leases[i] = &lessee{s, c, 0}
	}
	for _, c := range waits {
		s.queue(c)
		s.detach(c)
	}
	for _, c := range append(runs, waits...) {
		s.calls[c.name()] = c
		if c.state != running {
			s.asks(c)
		}
		s.send(c.again())
	}
	return leases, nil
}

// restorable reports whether none of calls is in use, nor impossible to serve.
func (s *Store) restorable(calls []*call) error {
	seen := make(map[name]bool, len(calls))
	for _, c := range calls {
		switch {
		case seen[c.name()] || s.calls[c.name()] != nil:
			return inUse(c.name())
		case len(c.record.Candidates) == 0:
			return fmt.Errorf("ticket %s, attempt %d, has no candidate", c.record.ID, c.record.Attempt)
		}
		seen[c.name()] = true
	}
	return nil
}

// again returns the command that brings c back to a store that has lost it.
func (c *call) again() request {
	c.sent, c.ticket = c.state != asked, nil
	r := c.record
	switch c.state {
	case running:
		r.Candidates = []queue.CandidateRecord{c.on}
		return request{command: command{Run: &r}, call: c}
	case waiting:
		return request{command: command{Wait: &r}, call: c}
	}
	return request{command: command{Admit: &r}, call: c}
}

// compareCalls orders calls so that they can be brought back one by one.
func compareCalls(a, b *call) int {
	return cmp.Or(
		cmp.Compare(b.state, a.state),
		cmp.Compare(b.record.Priority, a.record.Priority),
		cmp.Compare(a.place, b.place),
		cmp.Compare(a.record.Arrival, b.record.Arrival),
	)
}

// detach keeps a restored call until the host asks for it.
func (s *Store) detach(c *call) {
	c.abandon = time.AfterFunc(attachWithin, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.abandon != nil {
			s.drop(c, nil)
		}
	})
}

// attach returns the restored call that req asks for, or nil.
func (s *Store) attach(req *policy.AdmitRequest) *call {
	c := s.calls[name{req.Request.ID, req.Attempt}]
	if c == nil || c.abandon == nil {
		return nil
	}
	c.abandon.Stop()
	c.abandon = nil
	c.follow(req)
	if s.inLine(c) {
		s.bindSoon(c)
	}
	return c
}

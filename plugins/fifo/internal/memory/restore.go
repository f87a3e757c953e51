package memory

import (
	"context"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// attachWithin is how long a restored place, or a lease that it led to, is kept
// for a host that does not ask for it.
const attachWithin = 10 * time.Second

// Restore takes over what runs and waits elsewhere.
func (s *Store) Restore(_ context.Context, running []policy.Held, waiting []policy.AdmitRequest, rules queue.Rules) ([]policy.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	runs, waits, granted, err := s.queue.Restore(now, running, waiting, rules)
	if err != nil {
		return nil, err
	}
	s.dispatch(now, granted)
	for _, t := range waits {
		s.detach(t)
	}
	leases := make([]policy.Lease, len(runs))
	for i, t := range runs {
		leases[i] = &lease{s, t, 0}
	}
	return leases, nil
}

// detach keeps a restored ticket until the host asks for it.
func (s *Store) detach(t *queue.Ticket) {
	w := s.park(t, nil)
	if t.Running() {
		close(w.done)
	}
	w.abandon = time.AfterFunc(attachWithin, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.abandon != nil {
			s.forgetLocked(t)
		}
	})
}

// attach returns the restored ticket that req asks for, or nil.
func (s *Store) attach(req *policy.AdmitRequest) (*queue.Ticket, *wait) {
	if len(s.waits) == 0 {
		return nil, nil
	}
	t := s.queue.Find(req.Request.ID, req.Attempt)
	w := s.waits[t]
	if w == nil || w.abandon == nil {
		return nil, nil
	}
	w.abandon.Stop()
	w.abandon = nil
	if t.Running() {
		delete(s.waits, t)
	}
	s.follow(t, w, req.Waiting)
	return t, w
}

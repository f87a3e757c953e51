package memory

import (
	"context"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A wait connects a ticket that waits with the call that waits for it.
type wait struct {
	done chan struct{} // closed when the ticket runs
	told int           // the position that was told last
	move chan int      // the next one to tell; holds one

	// abandon ends the wait if nobody asks for a restored ticket. It is nil
	// once somebody did.
	abandon *time.Timer
}

// park returns the wait for a ticket that waits. It tells the position by which
// it begins if somebody wants to know.
func (s *Store) park(t *queue.Ticket, follow func(position int)) *wait {
	w := &wait{done: make(chan struct{}), move: make(chan int, 1)}
	s.waits[t] = w
	s.follow(t, w, follow)
	return w
}

// follow notes the position that the wait is about to tell.
func (s *Store) follow(t *queue.Ticket, w *wait, follow func(position int)) {
	if follow != nil && !t.Running() {
		w.told = s.queue.Position(t)
		w.move <- w.told
	}
}

// wait returns when t runs, or with the error by which its wait has ended.
func (s *Store) wait(ctx context.Context, t *queue.Ticket, w *wait, req *policy.AdmitRequest, rules queue.Rules) error {
	var late <-chan time.Time
	if rules.MaxWait > 0 {
		timer := time.NewTimer(rules.MaxWait)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case position := <-w.move:
		req.Waiting(position)
	default: // nobody wants to know
	}
	for {
		select {
		case <-w.done:
			return nil
		case position := <-w.move:
			req.Waiting(position)
		case <-ctx.Done():
			return s.cancel(t, ctx.Err())
		case <-late:
			return s.expire(t)
		}
	}
}

// cancel ends the wait of t with err, unless t runs already.
func (s *Store) cancel(t *queue.Ticket, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Running() {
		return nil
	}
	s.forgetLocked(t)
	return err
}

// expire ends the wait of t because it took too long, unless t runs already.
func (s *Store) expire(t *queue.Ticket) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Running() {
		return nil
	}
	now := time.Now()
	granted, err := s.queue.Expire(now, t)
	delete(s.waits, t)
	s.dispatch(now, granted)
	s.moved()
	return err
}

// end ends the wait of a ticket that runs. One that nobody asks for stays.
func (s *Store) end(t *queue.Ticket) {
	w := s.waits[t]
	if w == nil {
		return // is being restored
	}
	close(w.done)
	if w.abandon == nil {
		delete(s.waits, t)
	}
}

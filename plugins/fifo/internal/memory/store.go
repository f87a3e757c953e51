package memory

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A Store keeps leases and queues in memory. Its methods are those of a
// fifo.Store. It owns no goroutine: the callers of Admit wait by themselves.
type Store struct {
	mu    sync.Mutex // guards all below
	queue *queue.Queue
	waits map[*queue.Ticket]*wait

	wake   *time.Timer // runs tick
	wakeAt time.Time   // what wake is set to, or zero

	telling bool        // tell is set
	tell    *time.Timer // runs tellPositions
}

// New returns an empty store.
func New() *Store {
	s := &Store{queue: queue.New(time.Now()), waits: make(map[*queue.Ticket]*wait)}
	s.wake = stopped(s.tick)
	s.tell = stopped(s.tellPositions)
	return s
}

// stopped returns a timer that will call f once it is reset.
func stopped(f func()) *time.Timer {
	t := time.AfterFunc(math.MaxInt64, f)
	t.Stop()
	return t
}

// Admit decides on a request and waits if it must.
func (s *Store) Admit(ctx context.Context, req *policy.AdmitRequest, rules queue.Rules) (policy.Lease, error) {
	t, w, err := s.ask(ctx, req, rules)
	if err != nil {
		return nil, err
	}
	if w == nil {
		return &lease{s, t, t.Candidate()}, nil
	}
	if err := s.wait(ctx, t, w, req, rules); err != nil {
		return nil, err
	}
	candidate := t.IndexIn(req.Candidates)
	if candidate < 0 { // restored, and now asked for with other candidates
		s.forget(t)
		return s.Admit(ctx, req, rules)
	}
	return &lease{s, t, candidate}, nil
}

// ask returns the ticket of a request, and how to wait for it if it must.
func (s *Store) ask(ctx context.Context, req *policy.AdmitRequest, rules queue.Rules) (*queue.Ticket, *wait, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, w := s.attach(req); w != nil {
		return t, w, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	t, granted, err := s.queue.Admit(now, req, rules)
	s.dispatch(now, granted)
	if err != nil || t.Running() {
		return t, nil, err
	}
	w := s.park(t, req.Waiting)
	s.moved()
	return t, w, nil
}

// A lease is a running ticket.
type lease struct {
	store     *Store
	ticket    *queue.Ticket
	candidate int
}

var _ policy.Lease = (*lease)(nil)

func (l *lease) Candidate() int { return l.candidate }

func (l *lease) Release(_ context.Context, out policy.Outcome) error {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.dispatch(now, s.queue.Release(now, l.ticket, out.Usage))
	return nil
}

// forget ends a ticket that nobody will use.
func (s *Store) forget(t *queue.Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(t)
}

func (s *Store) forgetLocked(t *queue.Ticket) {
	delete(s.waits, t)
	now := time.Now()
	s.dispatch(now, s.queue.Forget(now, t))
	s.moved()
}

// tick lets those start for whom a window has room again.
func (s *Store) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.wakeAt = time.Time{}
	s.dispatch(now, s.queue.Tick(now))
}

// dispatch ends the waits of those who were granted a lease, and sets the time
// of the next tick. It follows every call that may change the queue.
func (s *Store) dispatch(now time.Time, granted []*queue.Ticket) {
	for _, t := range granted {
		s.end(t)
	}
	if len(granted) > 0 {
		s.moved()
	}
	if next, ok := s.queue.Next(); ok && (s.wakeAt.IsZero() || next.Before(s.wakeAt)) {
		s.wakeAt = next
		s.wake.Reset(next.Sub(now))
	}
}

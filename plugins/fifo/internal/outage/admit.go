package outage

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/usherproxy/usher/plugins/fifo/internal/memory"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A Store is a shared store for instances that go on without it. Its methods are
// those of a fifo.Store.
type Store struct {
	*Ladder
	Mode Mode // Local or Open
}

// retryAfter is when to come back to a store that is out of reach.
const retryAfter = time.Second

// Admit decides on a request and waits if it must, here or there.
func (s Store) Admit(ctx context.Context, req *policy.AdmitRequest, rules queue.Rules) (policy.Lease, error) {
	asked := time.Now()
	patience := rules.MaxWait
	for {
		state, epoch := s.now()
		if state != Shared {
			trace.SpanFromContext(ctx).SetAttributes(attribute.String("usher.fifo.store", string(state)))
		}
		inner, cancel := context.WithCancelCause(ctx)
		stop := context.AfterFunc(epoch, func() { cancel(errMoved) })
		l, err := s.admitIn(inner, state, req, rules)
		stop()
		cancel(nil)
		switch {
		case err == nil:
			return l, nil
		case ctx.Err() != nil:
			return nil, err
		case !errors.Is(err, errMoved) && context.Cause(inner) != errMoved && !s.gone(err, state):
			return nil, err
		}
		if patience > 0 {
			if rules.MaxWait = patience - time.Since(asked); rules.MaxWait <= 0 {
				return nil, policy.Reject(policy.ReasonQueueTimeout, retryAfter)
			}
		}
	}
}

// gone reports whether err says that the store went away, and this ladder has
// followed.
func (s Store) gone(err error, state State) bool {
	r, ok := errors.AsType[*policy.Rejection](err)
	if !ok || r.Reason != policy.ReasonStoreUnavailable || state != Shared {
		return false
	}
	s.follow()
	now, _ := s.now()
	return now != state
}

// admitIn asks whoever decides in a state.
func (s Store) admitIn(ctx context.Context, state State, req *policy.AdmitRequest, rules queue.Rules) (policy.Lease, error) {
	switch {
	case state == Shared:
		return s.admitShared(ctx, req, rules)
	case state == Alone && s.Mode == Open:
		return s.hold(&lease{held: heldBy(req, 0)}, nil), nil
	case state == Alone:
		return s.admitAlone(ctx, req, rules)
	case req.NoWait:
		return nil, policy.Reject(policy.ReasonStoreUnavailable, retryAfter)
	}
	return nil, s.await(ctx, req)
}

// await waits until replicas have told what they run.
func (l *Ladder) await(ctx context.Context, req *policy.AdmitRequest) error {
	l.mu.Lock()
	l.awaiting++
	position := l.awaiting
	l.mu.Unlock()
	if req.Waiting != nil {
		req.Waiting(position)
	}
	<-ctx.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaiting--
	return ctx.Err()
}

// admitShared asks the shared store.
func (s Store) admitShared(ctx context.Context, req *policy.AdmitRequest, rules queue.Rules) (policy.Lease, error) {
	l := &lease{}
	asked := *req
	if req.Revoke != nil {
		asked.Revoke = func(why policy.Reason) {
			if state, _ := s.now(); state != Alone { // else what runs goes on
				req.Revoke(why)
			}
		}
	}
	shared, err := s.shared.Admit(ctx, &asked, rules)
	if err != nil {
		return nil, err
	}
	l.shared, l.held = shared, heldBy(req, shared.Candidate())
	l.candidate = shared.Candidate()
	return s.hold(l, nil), nil
}

// admitAlone asks the store of this process for a part of the shares.
func (s Store) admitAlone(ctx context.Context, req *policy.AdmitRequest, rules queue.Rules) (policy.Lease, error) {
	s.mu.Lock()
	store, mine := s.alone, s.share
	s.mu.Unlock()
	if store == nil {
		return nil, errMoved // in the meantime
	}
	asked, request := *req, *req.Request
	asked.Request, asked.Candidates = &request, nil
	var fits bool
	if request.Scopes, fits = mine.of(request.Scopes); !fits {
		return nil, policy.Reject(policy.ReasonStoreUnavailable, retryAfter)
	}
	for _, c := range req.Candidates {
		if c.Scopes, fits = mine.of(c.Scopes); fits {
			asked.Candidates = append(asked.Candidates, c)
		}
	}
	if len(asked.Candidates) == 0 {
		return nil, policy.Reject(policy.ReasonStoreUnavailable, retryAfter)
	}
	alone, err := store.Admit(ctx, &asked, rules)
	if err != nil {
		return nil, err
	}
	id := asked.Candidates[alone.Candidate()].ID
	i := slices.IndexFunc(req.Candidates, func(c policy.Candidate) bool { return c.ID == id })
	return s.hold(&lease{candidate: i, alone: alone, held: heldBy(req, i)}, store), nil
}

func heldBy(req *policy.AdmitRequest, candidate int) policy.Held {
	return policy.Held{Request: req.Request, Attempt: req.Attempt, Candidate: req.Candidates[candidate]}
}

// A lease is one that is known wherever it has to be.
type lease struct {
	ladder    *Ladder
	held      policy.Held
	candidate int

	// The leases in the stores, or nil. The ladder's lock guards them.
	shared, alone policy.Lease
}

var _ policy.Lease = (*lease)(nil)

// hold notes that l runs. The state may have changed since it was granted, by the store of
// that process, or by none.
func (l *Ladder) hold(h *lease, by *memory.Store) *lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.ladder = l
	l.held[h] = struct{}{}
	switch {
	case l.state == Alone && (h.alone == nil || by != l.alone):
		l.countAlone(h)
	case l.state != Alone:
		h.bring(l.shared)
	}
	return h
}

// bring tells the shared store of a lease that it does not know. It reports whether it had to.
func (h *lease) bring(shared *postgres.Store) bool {
	h.alone = nil
	if h.shared != nil {
		return false
	}
	leases, err := shared.Restore(context.Background(), []policy.Held{h.held}, nil, queue.Rules{})
	if err != nil {
		return false // it knows of it
	}
	h.shared = leases[0]
	return true
}

func (h *lease) Candidate() int { return h.candidate }

// Release ends the lease wherever it is known.
func (h *lease) Release(ctx context.Context, out policy.Outcome) error {
	h.ladder.mu.Lock()
	delete(h.ladder.held, h)
	shared, alone := h.shared, h.alone
	h.ladder.mu.Unlock()
	var err error
	for _, l := range []policy.Lease{shared, alone} {
		if l != nil {
			err = errors.Join(err, l.Release(ctx, out))
		}
	}
	return err
}

// Restore takes over what runs and waits elsewhere.
func (s Store) Restore(ctx context.Context, running []policy.Held, waiting []policy.AdmitRequest, rules queue.Rules) ([]policy.Lease, error) {
	shared, err := s.shared.Restore(ctx, running, waiting, rules)
	if err != nil {
		return nil, err
	}
	leases := make([]policy.Lease, len(shared))
	for i, l := range shared {
		leases[i] = s.hold(&lease{held: running[i], shared: l}, nil)
	}
	return leases, nil
}

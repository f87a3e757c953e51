package postgres

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
)

// notify wakes replicas. That is a help only, so nobody waits for it, and it may
// fail. Those that are to be woken while a notification is under way share the
// next one.
func (s *Store) notify(ctx context.Context, replicas []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range replicas {
		s.asleep[id] = true
	}
	if len(s.asleep) > 0 && !s.notifying {
		s.notifying = true
		s.done.Go(func() { s.notifyAll(ctx) })
	}
}

func (s *Store) notifyAll(ctx context.Context) {
	for replicas := s.toWake(); len(replicas) > 0; replicas = s.toWake() {
		stepCtx, cancel := context.WithTimeout(ctx, StepTimeout)
		err := s.db.notify(stepCtx, replicas)
		cancel()
		if err != nil && ctx.Err() == nil {
			logger().Debug("notify", "error", err)
		}
	}
}

// toWake returns whom to wake next, and notes it if that is nobody.
func (s *Store) toWake() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	replicas := slices.Collect(maps.Keys(s.asleep))
	clear(s.asleep)
	s.notifying = len(replicas) > 0
	return replicas
}

// save stores the state of the machine beside everything else, and is called
// again if it fails.
func (s *Store) save() {
	if s.saving {
		return
	}
	seq, state := s.machine.seq, s.machine.state()
	s.saving = true
	s.done.Go(func() {
		err := s.store(seq, state)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.saving = false
		if err != nil {
			logger().Warn("save the state of leases", "error", err)
		}
	})
}

// store stores what the log has led to at seq.
func (s *Store) store(seq int64, state any) error {
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), StepTimeout)
	defer cancel()
	return s.db.save(ctx, seq, data)
}

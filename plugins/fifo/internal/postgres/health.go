package postgres

import (
	"context"
	"time"
)

// Health is how a store is.
type Health struct {
	// Away says that the store is out of reach: it refuses who asks.
	Away bool

	// Err is why, and Since when that began. Err may be set before Away is.
	Err   error
	Since time.Time

	// Replica is the number of this process among those that use the store, or
	// 0 if it is none.
	Replica int64

	// Listening says that notifications come.
	Listening bool
}

// health is what a store knows of itself besides. The zero value is ready.
type health struct {
	failure error     // of the last turn, or nil
	since   time.Time // when it failed first, or came back
	changed chan struct{}
}

// changes returns what is closed when the store goes away or comes back.
func (h *health) changes() chan struct{} {
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

// turn notes the end of a turn, and whether the store went away or came back with it.
func (h *health) turn(began time.Time, err error, changed bool) {
	if (h.failure == nil) != (err == nil) {
		h.since = began
	}
	h.failure = err
	if changed {
		close(h.changes())
		h.changed = nil
	}
}

// Health returns how the store is, and what is closed when Away changes.
func (s *Store) Health() (Health, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := Health{Away: s.away, Err: s.health.failure, Since: s.health.since, Listening: s.listening}
	if s.machine != nil {
		h.Replica = s.id
	}
	return h, s.health.changes()
}

// Replicas returns how many processes use the store, and how many of them came
// before this one.
func (s *Store) Replicas(ctx context.Context) (n, before int, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	h, _ := s.Health()
	err = s.db.pool.QueryRow(ctx, expand(`SELECT count(*), count(*) FILTER (WHERE id < $1)
		FROM $schema.replica WHERE expires > clock_timestamp()`, s.db.schema), h.Replica).Scan(&n, &before)
	return n, before, err
}

package postgres

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
)

// Health is how a store is.
type Health struct {
	// Away says that the store is out of reach: it refuses who asks.
	Away bool

	// Problem is why, or nil, and Since when that began. It may be set before
	// Away is.
	Problem *Problem
	Since   time.Time

	// Replica is the number of this process among those that use the store, or
	// 0 if it is none.
	Replica int64

	// Others is how many replicas keep this one away because they decide by other
	// rules, or 0.
	Others int

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
	h := Health{Away: s.away, Since: s.health.since, Listening: s.listening}
	if s.health.failure != nil {
		h.Problem, h.Others = s.db.explain(s.health.failure), otherRules(s.health.failure)
	}
	if s.machine != nil {
		h.Replica = s.id
	}
	return h, s.health.changes()
}

// Replicas returns how many processes use the store, and how many of them came
// before this one.
func (s *Store) Replicas(ctx context.Context) (n, before int, err error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	h, _ := s.Health()
	err = s.db.pool.QueryRow(ctx, expand(`SELECT count(*), count(*) FILTER (WHERE id < $1)
		FROM $schema.replica WHERE expires > clock_timestamp()`, s.db.schema), h.Replica).Scan(&n, &before)
	return n, before, err
}

// A ReplicaStatus is what one replica has, as the log tells.
type ReplicaStatus struct {
	Replica int64 `json:"replica"`
	Self    bool  `json:"self"`
	Running int   `json:"running"` // by the log, without what it admits from what it was lent
	Lent    int64 `json:"lent"`    // sum over all scopes
	Waiting int   `json:"waiting"`
}

// Status is what a store knows of what runs and waits, as far as the log was read.
type Status struct {
	Running, Waiting int // in this process
	Scopes           []queue.ScopeStatus
	Replicas         []ReplicaStatus // those who have something, and this one
}

// Status returns what the store knows.
func (s *Store) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{Waiting: s.waiting, Scopes: []queue.ScopeStatus{}, Replicas: []ReplicaStatus{}}
	for _, c := range s.calls {
		if c.state == running {
			status.Running++
		}
	}
	if s.machine == nil {
		return status
	}
	status.Scopes = s.machine.queue.Statuses(s.machine.at)
	by := s.machine.replicas()
	if by[s.id] == nil {
		by[s.id] = &ReplicaStatus{Replica: s.id}
	}
	by[s.id].Self = true
	for _, id := range slices.Sorted(maps.Keys(by)) {
		status.Replicas = append(status.Replicas, *by[id])
	}
	return status
}

// replicas returns what each replica has.
func (m *machine) replicas() map[int64]*ReplicaStatus {
	by := map[int64]*ReplicaStatus{}
	of := func(id int64) *ReplicaStatus {
		if by[id] == nil {
			by[id] = &ReplicaStatus{Replica: id}
		}
		return by[id]
	}
	for t, owner := range m.owners {
		if t.Running() {
			of(owner).Running++
		} else {
			of(owner).Waiting++
		}
	}
	for holder, n := range m.queue.Lent() {
		of(holder).Lent = n
	}
	return by
}

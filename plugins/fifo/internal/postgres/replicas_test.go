package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A load is many requests to several replicas, and what became of them.
type load struct {
	t       *testing.T
	scopes  []policy.Scope
	running []atomic.Int64 // of each scope, as the users see it

	mu  sync.Mutex
	ran map[ticketName]int // the candidate
}

func newLoad(t *testing.T) *load {
	scope := func(id string, limit int64) policy.Scope {
		return policy.Scope{ID: id, Kind: policy.ScopeConcurrency, Limit: limit}
	}
	l := &load{t: t, ran: map[ticketName]int{}, scopes: []policy.Scope{
		scope("fleet", 6), scope("caller:a", 2), scope("caller:b", 4), scope("key:1", 1), scope("key:2", 2), scope("key:3", 3),
	}}
	l.running = make([]atomic.Int64, len(l.scopes))
	return l
}

// run lets clients of a replica ask, some of whom do not wait until the end.
func (l *load) run(replica string, s *postgres.Store, clients, each int) {
	var arrivals atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range each {
				l.one(replica, s, arrivals.Add(1))
			}
		})
	}
	wg.Wait()
}

func (l *load) one(replica string, s *postgres.Store, arrival int64) {
	caller, keys := 1+rand.IntN(2), rand.Perm(3)[:2]
	req := &policy.AdmitRequest{
		Attempt: 1,
		Request: &policy.Request{
			ID: fmt.Sprint(replica, arrival), Arrival: arrival, Priority: rand.IntN(8) / 7,
			Scopes: []policy.Scope{l.scopes[0], l.scopes[caller]},
		},
		Candidates: []policy.Candidate{
			{ID: fmt.Sprint("k", keys[0]), Scopes: l.scopes[3+keys[0]:][:1]},
			{ID: fmt.Sprint("k", keys[1]), Scopes: l.scopes[3+keys[1]:][:1]},
		},
	}
	ctx := context.Background()
	if rand.IntN(4) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(100))*time.Millisecond)
		defer cancel()
	}
	lease, err := s.Admit(ctx, req, queue.Rules{MaxPasses: rand.IntN(3)})
	if err != nil {
		return
	}
	used := []int{0, caller, 3 + keys[lease.Candidate()]}
	for _, i := range used {
		if n := l.running[i].Add(1); n > l.scopes[i].Limit {
			l.t.Errorf("%s: %d of %d run", l.scopes[i].ID, n, l.scopes[i].Limit)
		}
	}
	l.mu.Lock()
	l.ran[ticketName{req.Request.ID, 1}] = lease.Candidate()
	l.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
	for _, i := range used {
		l.running[i].Add(-1)
	}
	if err := lease.Release(ctx, policy.Outcome{Usage: &policy.Usage{}}); err != nil {
		l.t.Error(err)
	}
}

// free checks that nothing is left of the load.
func (l *load) free(s *postgres.Store) {
	l.t.Helper()
	for i, scope := range l.scopes {
		var leases []policy.Lease
		for n := range scope.Limit + 1 {
			lease, err := s.Admit(l.t.Context(), &policy.AdmitRequest{
				Attempt: 1, NoWait: true, Candidates: []policy.Candidate{{ID: "any"}},
				Request: &policy.Request{ID: fmt.Sprint("free", i, "/", n), Arrival: 1e9, Scopes: []policy.Scope{scope}},
			}, queue.Rules{})
			if (err == nil) != (n < scope.Limit) {
				l.t.Errorf("%s: request %d of %d: %v", scope.ID, n+1, scope.Limit, err)
			}
			if err == nil {
				leases = append(leases, lease)
			}
		}
		for _, lease := range leases {
			if err := lease.Release(l.t.Context(), policy.Outcome{}); err != nil {
				l.t.Error(err)
			}
		}
	}
}

// agree checks that all replicas have come to the same state.
func agree(t *testing.T, stores []*postgres.Store) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		seqs, states := map[int64]bool{}, map[string]bool{}
		for _, s := range stores {
			seq, state := s.State()
			seqs[seq], states[state] = true, true
		}
		if len(seqs) == 1 && len(states) == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("entries %v, %d different states: %v", seqs, len(states), states)
		}
	}
}

// Invariants 1 to 6 and 14: what the users see is what the log and the
// model say, limits hold at the users, and nothing is left.
func TestReplicasShareLimitsAndOrder(t *testing.T) {
	t.Parallel()
	schema, l := pgtest.Schema(), newLoad(t)
	stores := []*postgres.Store{open(t, schema), open(t, schema), open(t, schema)}
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() { l.run(fmt.Sprint("s", i, "-"), s, 8, 40) })
	}
	wg.Wait()
	agree(t, stores)
	ran := checkLog(t, schema)
	for n, candidate := range l.ran {
		if got, ok := ran[n]; !ok || got != candidate {
			t.Errorf("%v ran on %d, and %d, %t by the log", n, candidate, got, ok)
		}
	}
	t.Logf("%d have run", len(l.ran))
	for _, s := range stores {
		l.free(s)
		agree(t, stores)
	}
}

// A replica that joins late begins from a state that was saved, and agrees.
func TestLateReplicaAgrees(t *testing.T) {
	t.Parallel()
	schema, l := pgtest.Schema(), newLoad(t)
	first := open(t, schema)
	l.run("s0-", first, 40, 80)
	var saved int64
	// The log is kept for a while longer, for those who have not read it.
	if err := connect(t).QueryRow(t.Context(), "SELECT seq FROM "+schema+".snapshot").Scan(&saved); err != nil || saved == 0 {
		t.Errorf("a state was saved at %d, %v", saved, err)
	}
	second := open(t, schema)
	l.free(second)
	agree(t, []*postgres.Store{first, second})
}

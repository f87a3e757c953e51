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
	plenty  int64
	moments atomic.Int64

	mu   sync.Mutex
	ran  map[ticketName]int // the candidate
	uses []use
}

// newLoad returns a load on scopes of which there is so much. The more there is,
// the less often somebody waits.
func newLoad(t *testing.T, plenty int64) *load {
	scope := func(id string, limit int64) policy.Scope {
		return policy.Scope{ID: id, Kind: policy.ScopeConcurrency, Limit: limit * plenty}
	}
	l := &load{t: t, plenty: plenty, ran: map[ticketName]int{}, scopes: []policy.Scope{
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
	if l.plenty > 1 {
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		req.NoWait = rand.IntN(20) == 0
	}
	ctx := context.Background()
	if rand.IntN(4) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(100))*time.Millisecond)
		defer cancel()
	}
	u := use{name: ticketName{req.Request.ID, 1}}
	u.from[0], _ = s.At()
	lease, err := s.Admit(ctx, req, queue.Rules{MaxPasses: rand.IntN(3)})
	if err != nil {
		return
	}
	u.from[1], u.replica = s.At()
	u.began = l.moments.Add(1)
	used := []int{0, caller, 3 + keys[lease.Candidate()]}
	for _, i := range used {
		u.scopes = append(u.scopes, l.scopes[i].ID)
		if n := l.running[i].Add(1); n > l.scopes[i].Limit {
			l.t.Errorf("%s: %d of %d run", l.scopes[i].ID, n, l.scopes[i].Limit)
		}
	}
	l.mu.Lock()
	l.ran[u.name] = lease.Candidate()
	l.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
	for _, i := range used {
		l.running[i].Add(-1)
	}
	u.until, _ = s.At()
	u.ended = l.moments.Add(1)
	l.mu.Lock()
	l.uses = append(l.uses, u)
	l.mu.Unlock()
	if err := lease.Release(ctx, policy.Outcome{Usage: &policy.Usage{}}); err != nil {
		l.t.Error(err)
	}
}

// check checks what the users have seen against the log.
func (l *load) check(schema string) {
	l.t.Helper()
	c := goThroughLog(l.t, schema)
	var uses []use
	for _, u := range l.uses {
		switch got, ok := c.ran[u.name]; {
		case !ok:
			uses = append(uses, u)
		case got != l.ran[u.name]:
			l.t.Errorf("%v ran on %d, and %d by the log", u.name, l.ran[u.name], got)
		}
	}
	c.checkUses(uses)
	c.checkHands(l.uses)
	l.t.Logf("%d have run, %d of them on credits and %d as heirs", len(l.ran), len(uses), len(c.handed))
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
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
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
	for _, plenty := range []int64{1, 2, 4, 16} {
		t.Run(fmt.Sprint("plenty=", plenty), func(t *testing.T) {
			t.Parallel()
			shareLimitsAndOrder(t, plenty)
		})
	}
}

func shareLimitsAndOrder(t *testing.T, plenty int64) {
	schema, l := pgtest.Schema(), newLoad(t, plenty)
	stores := []*postgres.Store{open(t, schema), open(t, schema), open(t, schema)}
	if plenty > 1 {
		keepAtOnce(stores)
	}
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() { l.run(fmt.Sprint("s", i, "-"), s, 8, 40) })
	}
	wg.Wait()
	agree(t, stores)
	l.check(schema)
	for _, s := range stores {
		l.free(s)
		agree(t, stores)
	}
}

// keepAtOnce makes credits come and go as often as possible.
func keepAtOnce(stores []*postgres.Store) {
	for _, s := range stores {
		s.KeepAtOnce()
	}
}

// A replica that joins late begins from a state that was saved, and agrees.
func TestLateReplicaAgrees(t *testing.T) {
	t.Parallel()
	schema, l := pgtest.Schema(), newLoad(t, 1)
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

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}

package outage_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/usherproxy/usher/internal/pgserver"
	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo/internal/outage"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

// longTime is for what only must not take for ever.
const longTime = 60 * time.Second

// startServer starts a server that the test may halt.
func startServer(t *testing.T) *pgserver.Server {
	t.Helper()
	s, err := pgserver.Start("fsync=off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// open returns a replica that goes on alone.
func open(t *testing.T, s *pgserver.Server, mode outage.Mode) outage.Store {
	t.Helper()
	store, err := postgres.Open(s.DSN(), "usher")
	if err != nil {
		t.Fatal(err)
	}
	ladder := outage.New(store)
	t.Cleanup(func() {
		ladder.Close()
		_ = store.Close(context.Background()) // the server may be away
	})
	return outage.Store{Ladder: ladder, Mode: mode}
}

// is waits until the ladder stands so, with so many replicas.
func is(t *testing.T, s outage.Store, state outage.State, replicas int64) {
	t.Helper()
	for end := time.Now().Add(longTime); ; time.Sleep(10 * time.Millisecond) {
		got := s.Standing()
		if got.State == state && got.Replicas == replicas {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, want %s with %d replicas", got, state, replicas)
		}
	}
}

func ask(id string, arrival, limit int64) *policy.AdmitRequest {
	return &policy.AdmitRequest{
		Attempt: 1,
		Request: &policy.Request{
			ID: id, Arrival: arrival, Scopes: []policy.Scope{{ID: "fleet", Kind: policy.ScopeConcurrency, Limit: limit}},
		},
		Candidates: []policy.Candidate{{ID: "c"}},
	}
}

func admit(t *testing.T, s outage.Store, req *policy.AdmitRequest) policy.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longTime)
	defer cancel()
	lease, err := s.Admit(ctx, req, queue.Rules{})
	if err != nil {
		t.Fatalf("%s: Admit = %v", req.Request.ID, err)
	}
	return lease
}

func refused(t *testing.T, s outage.Store, req *policy.AdmitRequest, want policy.Reason) {
	t.Helper()
	req.NoWait = true
	_, err := s.Admit(t.Context(), req, queue.Rules{})
	if r, ok := errors.AsType[*policy.Rejection](err); !ok || r.Reason != want {
		t.Fatalf("%s: Admit = %v, want %s", req.Request.ID, err, want)
	}
}

func release(t *testing.T, leases ...policy.Lease) {
	t.Helper()
	for _, l := range leases {
		if err := l.Release(t.Context(), policy.Outcome{}); err != nil {
			t.Error(err)
		}
	}
}

// line asks, and returns when the request waits, and its lease later.
func line(t *testing.T, s outage.Store, req *policy.AdmitRequest) <-chan policy.Lease {
	t.Helper()
	waits, leases := make(chan struct{}), make(chan policy.Lease, 1)
	var once sync.Once
	req.Waiting = func(int) { once.Do(func() { close(waits) }) }
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), longTime)
		defer cancel()
		lease, err := s.Admit(ctx, req, queue.Rules{})
		if err != nil {
			t.Errorf("%s: Admit = %v", req.Request.ID, err)
			close(leases)
			return
		}
		leases <- lease
	}()
	select {
	case <-waits:
	case <-time.After(longTime):
		t.Fatalf("%s does not wait", req.Request.ID)
	}
	return leases
}

// Invariant 15: alone, each replica admits its share, with what it ran before. Who waited in the
// shared queue is served. Back again, nobody is admitted beyond the limit, by
// what was admitted alone and what is admitted then.
func TestGoingOnAlone_B128(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	a, b := open(t, server, outage.Local), open(t, server, outage.Local)
	before := []policy.Lease{admit(t, a, ask("a1", 1, 3)), admit(t, a, ask("a2", 2, 3)), admit(t, b, ask("b1", 1, 3))}
	is(t, a, outage.Shared, 2)
	is(t, b, outage.Shared, 2)
	waits := line(t, b, ask("b2", 2, 3))
	if err := server.Halt(); err != nil {
		t.Fatal(err)
	}
	is(t, a, outage.Alone, 2)
	is(t, b, outage.Alone, 2)
	refused(t, a, ask("a3", 3, 3), policy.ReasonConcurrency)
	release(t, before...)
	alone := []policy.Lease{<-waits}
	for i := range int64(3) {
		for n, s := range []outage.Store{a, b} {
			req := ask(fmt.Sprint("alone", n, "-", i), 10+i, 3)
			req.NoWait = true
			if lease, err := s.Admit(t.Context(), req, queue.Rules{}); err == nil {
				alone = append(alone, lease)
			}
		}
	}
	if len(alone) != 3 {
		t.Fatalf("two replicas ran %d of 3 alone", len(alone))
	}
	if err := server.Continue(); err != nil {
		t.Fatal(err)
	}
	is(t, a, outage.Returning, 2)
	last := line(t, a, ask("a9", 20, 3))
	is(t, a, outage.Shared, 2)
	is(t, b, outage.Shared, 2)
	refused(t, a, ask("a10", 21, 3), policy.ReasonConcurrency)
	refused(t, b, ask("b10", 21, 3), policy.ReasonConcurrency)
	release(t, alone...)
	release(t, <-last)
	for i := range int64(3) {
		alone[i] = admit(t, b, ask(fmt.Sprint("end", i), 30+i, 3))
	}
	refused(t, a, ask("a11", 40, 3), policy.ReasonConcurrency)
	release(t, alone...)
}

// Open, everybody runs at once. What runs when the store is back counts.
func TestGoingOnOpen_B128(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := open(t, server, outage.Open)
	lease := admit(t, s, ask("before", 1, 1))
	waits := line(t, s, ask("waits", 2, 1))
	if err := server.Halt(); err != nil {
		t.Fatal(err)
	}
	leases := []policy.Lease{lease, <-waits, admit(t, s, ask("alone", 3, 1))}
	if err := server.Continue(); err != nil {
		t.Fatal(err)
	}
	is(t, s, outage.Shared, 1)
	refused(t, s, ask("after", 4, 1), policy.ReasonConcurrency)
	release(t, leases...)
	release(t, admit(t, s, ask("last", 5, 1)))
}

// Replicas of another version, which decides by other rules, go on with the whole
// limits. Who is kept away by them takes a share as if it were one of them.
func TestOtherRulesLeaveAShare(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	first, err := postgres.Open(server.DSN(), "usher")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Admit(t.Context(), ask("first", 1, 1), queue.Rules{}); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the server may be away
	const others = `UPDATE usher.snapshot SET rules = -1;
		INSERT INTO usher.replica (expires) SELECT clock_timestamp() + interval '1 hour' FROM generate_series(1, 3)`
	if _, err := conn.Exec(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	s := open(t, server, outage.Local)
	is(t, s, outage.Alone, 4)
	admit(t, s, ask("a", 1, 8))
	admit(t, s, ask("b", 2, 8))
	third := ask("c", 3, 8)
	third.NoWait = true
	if _, err := s.Admit(t.Context(), third, queue.Rules{}); err == nil {
		t.Error("a third of 8 was admitted beside three replicas that have them all")
	}
	if _, err := conn.Exec(t.Context(), `DELETE FROM usher.replica`); err != nil {
		t.Fatal(err)
	}
	is(t, s, outage.Shared, 1)
}

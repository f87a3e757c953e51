package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A slot that is released while another replica gets in line for it is taken,
// whatever comes first.
func TestReleaseWhileAnotherGetsInLine_B116(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	a, b := open(t, schema), open(t, schema)
	for i := range int64(60) {
		lease := admit(t, a, ask(fmt.Sprint("a", i), 2*i+1))
		var both sync.WaitGroup
		both.Go(func() { release(t, lease) })
		both.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			next, err := b.Admit(ctx, ask(fmt.Sprint("b", i), 2*i+2), queue.Rules{})
			if err != nil {
				t.Errorf("round %d: Admit = %v", i, err)
				return
			}
			release(t, next)
		})
		both.Wait()
	}
}

// While nobody waits, nobody is notified, however many requests there are: each
// notification would wait for all others.
func TestNobodyIsNotifiedWhileNobodyWaits_B118_B119(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	stores := []*postgres.Store{open(t, schema), open(t, schema)}
	listening(t, stores...)
	conn := connect(t)
	if _, err := conn.Exec(t.Context(), "LISTEN usher_fifo_"+schema); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	const workers, each = 8, 60
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range each {
				req := ask(fmt.Sprint("w", w, "-", i), int64(i+1))
				req.Request.Scopes[0].ID = fmt.Sprint("caller:", w)
				lease, err := stores[w%2].Admit(t.Context(), req, queue.Rules{})
				if err != nil {
					t.Error(err)
					return
				}
				release(t, lease)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	if _, err := connect(t).Exec(t.Context(), "SELECT pg_notify($1, 'the end')", "usher_fifo_"+schema); err != nil {
		t.Fatal(err)
	}
	told := 0
	for {
		n, err := conn.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n.Payload == "the end" {
			break
		}
		told++
	}
	if most := 5 * (1 + int(took.Seconds())); told > most {
		t.Errorf("%d notifications for %d requests in %s, want at most %d", told, workers*each, took, most)
	}
}

// Who waits holds no connection, so any number may, and others are served
// meanwhile.
func TestWaitingTakesNoConnection_B122(t *testing.T) {
	t.Parallel()
	const waiters = 100
	schema := pgtest.Schema()
	s := openAt(t, pgtest.DSN(t)+" application_name="+schema, schema)
	lease := admit(t, s, ask("runs", 1))
	var waits []<-chan policy.Lease
	for i := range int64(waiters) {
		waits = append(waits, line(t, s, ask(fmt.Sprint("waits", i), i+2)))
	}
	other := ask("other", 200)
	other.Request.Scopes[0].ID = "caller:other"
	release(t, admit(t, s, other))
	var connections int
	err := connect(t).QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", schema).Scan(&connections)
	if err != nil || connections > 4 { // as package postgres says: three, and that of the listener
		t.Errorf("%d connections for %d who wait, %v", connections, waiters, err)
	}
	release(t, lease)
	for _, w := range waits {
		release(t, <-w)
	}
}

// Requests that name their scopes in different orders never hold each other up.
func TestScopesInAnyOrder_B130_B131(t *testing.T) {
	t.Parallel()
	const workers, each, limit = 32, 25, 3
	schema := pgtest.Schema()
	stores := []*postgres.Store{open(t, schema), open(t, schema)}
	scope := func(id string) policy.Scope {
		return policy.Scope{ID: id, Kind: policy.ScopeConcurrency, Limit: limit}
	}
	before := deadlocks(t)
	var running, ended atomic.Int64
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range each {
				req := ask(fmt.Sprint("w", w, "-", i), int64(i+1))
				if req.Request.Scopes = []policy.Scope{scope("x"), scope("y")}; w%2 == 1 {
					req.Request.Scopes = []policy.Scope{scope("y"), scope("x")}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
				if (w+i)%10 == 0 { // leaves early
					cancel()
					ctx, cancel = context.WithTimeout(t.Context(), 5*time.Millisecond)
				}
				lease, err := stores[w/2%2].Admit(ctx, req, queue.Rules{})
				switch {
				case err == nil:
					if n := running.Add(1); n > limit {
						t.Errorf("%d run, want at most %d", n, limit)
					}
					running.Add(-1)
					release(t, lease)
				case ctx.Err() == nil:
					t.Errorf("Admit = %v", err)
				}
				cancel()
				ended.Add(1)
			}
		})
	}
	all.Wait()
	if n := deadlocks(t) - before; n != 0 || ended.Load() != workers*each {
		t.Errorf("%d deadlocks, and %d requests ended", n, ended.Load())
	}
	for i := range int64(limit) { // all is free again
		req := ask(fmt.Sprint("last", i), 1000+i)
		req.NoWait, req.Request.Scopes = true, []policy.Scope{scope("x"), scope("y")}
		lease := admit(t, stores[0], req)
		defer release(t, lease)
	}
	agree(t, stores)
}

// deadlocks returns how many the server has seen.
func deadlocks(t *testing.T) (n int64) {
	t.Helper()
	err := connect(t).QueryRow(t.Context(), "SELECT coalesce(sum(deadlocks), 0)::bigint FROM pg_stat_database", pgx.QueryExecModeSimpleProtocol).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

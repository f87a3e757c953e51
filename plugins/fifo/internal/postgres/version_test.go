package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// openNext returns a replica of a version whose rules are not those of the others.
func openNext(t *testing.T, schema string) *postgres.Store {
	t.Helper()
	s, err := postgres.OpenWithRules(pgtest.DSN(t), schema, postgres.RulesVersion+1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) }) // what a test closes itself is closed
	return s
}

// keptAway waits until so many replicas of other rules keep s away.
func keptAway(t *testing.T, s *postgres.Store, others int) {
	t.Helper()
	waitFor(t, func() bool { h, _ := s.Health(); return h.Away && h.Others == others })
	h, _ := s.Health()
	want := fmt.Sprintf("decides by other rules (%d of them, with rules %d, not %d)", others, postgres.RulesVersion, postgres.RulesVersion+1)
	if !strings.Contains(h.Problem.Error(), want) {
		t.Errorf("the problem is %q, want %q", h.Problem, want)
	}
}

// Invariant 14, while replicas of one version are replaced by those of another that
// decides otherwise: the old ones serve as ever, the new ones refuse, and take over
// when the last old one has ended.
func TestOtherRulesWaitForTheOldOnes(t *testing.T) {
	t.Parallel()
	schema, l := pgtest.Schema(), newLoad(t, 1)
	old := []*postgres.Store{openUnclosed(t, pgtest.DSN(t), schema), openUnclosed(t, pgtest.DSN(t), schema)}
	listening(t, old...)
	for i, s := range old { // both have joined
		req := ask(fmt.Sprint("first", i), 0)
		req.Request.Scopes = nil
		release(t, admit(t, s, req))
	}
	next := openNext(t, schema)
	keptAway(t, next, 2)
	listening(t, next)
	var clients sync.WaitGroup
	for i, s := range old {
		clients.Go(func() { l.run(fmt.Sprint("s", i, "-"), s, 8, 20) })
	}
	for i := range 50 {
		_, err := next.Admit(t.Context(), ask(fmt.Sprint("early", i), 1), queue.Rules{})
		if r, ok := errors.AsType[*policy.Rejection](err); !ok || r.Reason != policy.ReasonStoreUnavailable || r.RetryAfter <= 0 {
			t.Fatalf("Admit = %v, want store_unavailable with an instant to come back", err)
		}
	}
	clients.Wait()
	agree(t, old)
	l.check(schema)
	for _, s := range old {
		l.free(s)
		agree(t, old)
	}
	if err := old[1].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	keptAway(t, next, 1)
	_, back := next.Health()
	if err := old[0].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-back
	release(t, admit(t, next, ask("late", 2)))
	late := openUnclosed(t, pgtest.DSN(t), schema) // is too late, as the other was too early
	waitFor(t, func() bool { h, _ := late.Health(); return h.Away && h.Others == 1 })
	if err := late.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Replicas whose leases have all run out may have been kept from the database
// together. New rules do not begin before they have had the time to come back.
func TestOtherRulesWaitForWhoWasKeptAway(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	first := openUnclosed(t, pgtest.DSN(t), schema)
	release(t, admit(t, first, ask("first", 1)))
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := connect(t)
	for _, test := range []struct {
		expired string
		joins   bool
	}{{"-1 hour", false}, {"1 second", false}, {postgres.Lease.String(), true}} {
		if _, err := conn.Exec(t.Context(), "DELETE FROM "+schema+".replica"); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "INSERT INTO "+schema+".replica (expires) VALUES (clock_timestamp() - $1::text::interval)", test.expired); err != nil {
			t.Fatal(err)
		}
		_, err := conn.Exec(t.Context(), "SELECT "+schema+".join(0, $1, $2)", postgres.RulesVersion+1, postgres.Lease)
		e, ok := errors.AsType[*pgconn.PgError](err)
		if test.joins != (err == nil) || err != nil && (!ok || e.Code != "UF002") {
			t.Errorf("one whose lease ended %s ago: join says %v", test.expired, err)
		}
	}
}

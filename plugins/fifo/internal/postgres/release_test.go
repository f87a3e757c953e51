package postgres_test

import (
	"fmt"
	"testing"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/policy"
)

// Many releases, one after the other, as a host reports them, wait for no step, and
// share one.
func TestReleasesShareAStep(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	s := open(t, schema)
	var leases []policy.Lease
	for i := range 50 {
		req := ask(fmt.Sprint("r", i), int64(i+1))
		req.Request.Scopes[0].Limit = 50
		leases = append(leases, admit(t, s, req))
	}
	conn := connect(t)
	lock := "hashtextextended('usher.fifo " + schema + "', 0)" // whoever appends needs it
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock("+lock+")"); err != nil {
		t.Fatal(err)
	}
	release(t, leases...)
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock("+lock+")"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return s.Status().Replicas[0].Running == 0 }) // by the log
	n, entries := 0, 0
	for _, e := range readLog(t, schema) {
		if of := releases(t, e); of > 0 {
			n, entries = n+of, entries+1
		}
	}
	if n != 50 || entries > 2 { // the first one may be on its way before the others come
		t.Errorf("%d releases became %d entries, want 50 and 2 at most", n, entries)
	}
}

func releases(t *testing.T, e row) (n int) {
	commands, err := postgres.Decode(e.Commands)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands {
		if c.Release != nil {
			n++
		}
	}
	return n
}

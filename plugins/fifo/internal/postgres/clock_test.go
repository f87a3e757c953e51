package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
)

// A clock is that of the database for some replicas. The test sets it.
type clock struct {
	t      *testing.T
	conn   *pgx.Conn
	schema string // of the store
}

// newClock returns a clock that is right, and the DSN of replicas that go by it.
func newClock(t *testing.T) (*clock, string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	c := &clock{t, conn, pgtest.Schema()}
	skewed := c.schema + "_clock"
	c.do(fmt.Sprintf(`CREATE SCHEMA %[1]s; CREATE TABLE %[1]s.shift AS SELECT interval '0' AS by;
		CREATE FUNCTION %[1]s.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
			AS 'SELECT pg_catalog.clock_timestamp() + by FROM %[1]s.shift'`, skewed))
	return c, fmt.Sprintf("%s search_path=%s,pg_catalog", pgtest.DSN(t), skewed)
}

func (c *clock) do(sql string) {
	c.t.Helper()
	if _, err := c.conn.Exec(c.t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		c.t.Fatal(err)
	}
}

// set sets the clock so far from the right time.
func (c *clock) set(by string) {
	c.t.Helper()
	c.do(fmt.Sprintf(`UPDATE %s_clock.shift SET by = '%s'`, c.schema, by))
}

// until waits until as many replicas as that are there and meet a condition, and no others.
func (c *clock) until(n int, condition string) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); c.count("true") != n || c.count(condition) != n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%d replicas, %d of which %s; want %d", c.count("true"), c.count(condition), condition, n)
		}
	}
}

// count returns how many replicas there are of which a condition holds.
func (c *clock) count(condition string) (n int) {
	c.t.Helper()
	if err := c.conn.QueryRow(c.t.Context(), fmt.Sprintf(`SELECT count(*) FROM %s.replica WHERE %s`, c.schema, condition)).Scan(&n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// Invariant 14: the clock of the database jumps. Who runs goes on under the same limit, who waits is
// served, and a replica that has died is not believed to live for as long as the
// clock was ahead.
func TestTheClockOfTheDatabaseJumps_B126(t *testing.T) {
	t.Parallel()
	c, dsn := newClock(t)
	open := func() *postgres.Store {
		s, err := postgres.Open(dsn, c.schema)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	a, b := open(), open()
	runs, waits := admitSoon(t, a), line(t, b, ask("waits", 1))
	for _, by := range []string{"1 minute", "-1 minute", "1 hour"} {
		c.set(by)
		// Both go by the new time.
		c.until(2, fmt.Sprintf(`expires > now() + interval '%[1]s' AND expires < now() + interval '%[1]s' + interval '20 s'`, by))
	}
	// One dies that has just renewed its lease, and the clock is set right.
	c.do(fmt.Sprintf(`INSERT INTO %[1]s.replica (expires) SELECT clock_timestamp() + by + interval '12 s' FROM %[1]s_clock.shift`, c.schema))
	c.set("0")
	c.until(2, "expires < now() + interval '20 s'")
	if n := a.Status().Running; n != 1 {
		t.Errorf("%d requests run, want 1", n)
	}
	if n := b.Status().Waiting; n != 1 {
		t.Errorf("%d requests wait, want 1", n)
	}
	release(t, runs)
	release(t, <-waits)
}

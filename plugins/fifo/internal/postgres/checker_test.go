package postgres_test

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/plugins/fifo/internal/reference"
	"github.com/usherproxy/usher/policy"
)

// A row is an entry of the log, as anybody can read it.
type row struct {
	Seq, At, Replica int64
	Gone             []int64
	Commands         []byte
}

type ticketName struct {
	ID      string
	Attempt int
}

// readLog reads the log of a schema, none of which has been forgotten.
func readLog(t testing.TB, schema string) []row {
	t.Helper()
	conn := connect(t)
	rows, err := conn.Query(t.Context(), "SELECT seq, at, replica, gone, commands FROM "+schema+".entry ORDER BY seq")
	if err != nil {
		t.Fatal(err)
	}
	log, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

// A checker goes through the log with the model of package reference, and finds
// out who should have run where.
type checker struct {
	t     testing.TB
	model reference.Model
	live  map[ticketName]*reference.Entry
	owner map[ticketName]int64
	ran   map[ticketName]int // the candidate

	waits  []map[*reference.Entry][]string // who waits after each entry, for what
	handed map[ticketName]int64            // the last entry that the replica had read

	// After each entry: which scopes somebody waits for, and what was lent to whom.
	claimed []map[string]bool
	lent    []map[string]int64
}

// goThroughLog checks that the log keeps the invariants of package fifo, and
// returns what it has learned.
func goThroughLog(t testing.TB, schema string) *checker {
	t.Helper()
	return goThrough(t, readLog(t, schema))
}

func goThrough(t testing.TB, log []row) *checker {
	t.Helper()
	c := &checker{
		t: t, live: map[ticketName]*reference.Entry{}, owner: map[ticketName]int64{}, ran: map[ticketName]int{},
		waits: make([]map[*reference.Entry][]string, 1), handed: map[ticketName]int64{},
		claimed: make([]map[string]bool, 1), lent: make([]map[string]int64, 1),
	}
	for i, e := range log {
		if e.Seq != int64(i+1) {
			t.Fatalf("entry %d is number %d", e.Seq, i+1)
		}
		c.entry(e)
		c.noteLoans(time.UnixMicro(e.At))
	}
	return c
}

func (c *checker) entry(e row) {
	now := time.UnixMicro(e.At)
	c.model.Settle(now)
	for _, id := range e.Gone {
		c.gone(now, id)
	}
	commands, err := postgres.Decode(e.Commands)
	if err != nil {
		c.t.Fatal(err)
	}
	var keep [][]string
	for _, command := range commands {
		switch {
		case command.Admit != nil:
			c.admit(now, e, command.Admit)
		case command.Release != nil:
			if command.Release.Keep {
				keep = append(keep, c.holds(nameOf(command.Release.ID, command.Release.Attempt), e.Replica))
			}
			c.end(now, nameOf(command.Release.ID, command.Release.Attempt), e.Replica)
		case command.Forget != nil:
			c.end(now, ticketName(*command.Forget), e.Replica)
		case command.Hand != nil:
			c.hand(now, e, command.Hand)
		case command.Give != nil:
			for _, l := range command.Give {
				c.model.Return(e.Replica, l.Scope, l.N)
			}
			c.model.Settle(now)
		default:
			c.t.Fatalf("entry %d: what is that? %s", e.Seq, e.Commands)
		}
		c.note()
	}
	for _, ids := range keep {
		c.model.Lend(now, e.Replica, ids)
	}
	if err := c.model.Check(now); err != nil {
		c.t.Fatalf("entry %d: %v", e.Seq, err)
	}
}

func nameOf(id string, attempt int) ticketName { return ticketName{id, attempt} }

func (c *checker) admit(now time.Time, e row, r *queue.Record) {
	if r.Arrival <= 0 {
		r.Arrival += e.Seq << 20
	}
	n := ticketName{r.ID, r.Attempt}
	if entry, reason := c.model.AdmitFor(now, e.Replica, r.Request(), queue.Rules(r.Rules)); reason == "" {
		c.live[n], c.owner[n] = entry, e.Replica
	}
}

func (c *checker) end(now time.Time, n ticketName, by int64) {
	entry := c.live[n]
	if entry == nil || c.owner[n] != by {
		return
	}
	delete(c.live, n)
	if slices.Contains(c.model.Running, entry) {
		c.model.Release(now, entry, &policy.Usage{})
		return
	}
	c.model.Cancel(now, entry)
}

func (c *checker) gone(now time.Time, replica int64) {
	names := slices.SortedFunc(maps.Keys(c.live), func(a, b ticketName) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Attempt, b.Attempt))
	})
	for pass := range 2 { // those who wait first
		for _, n := range names {
			entry := c.live[n]
			runs := c.runs(entry)
			if c.owner[n] == replica && (pass == 1 || !runs) {
				c.end(now, n, replica)
			}
		}
	}
	c.model.ReturnAll(now, replica)
}

// holds returns what a lease holds.
func (c *checker) holds(n ticketName, by int64) (ids []string) {
	entry := c.live[n]
	if entry == nil || c.owner[n] != by || !c.runs(entry) {
		return nil
	}
	for _, s := range entry.Holds() {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (c *checker) runs(entry *reference.Entry) bool {
	return slices.Contains(c.model.Running, entry)
}

// note notes who runs.
func (c *checker) note() {
	for n, entry := range c.live {
		if c.runs(entry) {
			c.ran[n] = entry.Candidate
		}
	}
}

package board_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/usherproxy/usher/internal/freeport"
	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/keys/internal/board"
)

func TestMain(m *testing.M) {
	pgtest.Main(m, func() error { return goleak.Find() })
}

// An ear keeps what a board hears.
type ear struct {
	mu    sync.Mutex
	rows  map[string]board.Row
	heard chan struct{}
}

func newEar() *ear { return &ear{rows: map[string]board.Row{}, heard: make(chan struct{}, 1)} }

func (e *ear) hear(rows []board.Row) {
	e.mu.Lock()
	for _, r := range rows {
		e.rows[r.Subject+" "+r.Fact] = r
	}
	e.mu.Unlock()
	select {
	case e.heard <- struct{}{}:
	default:
	}
}

func (e *ear) value(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return string(e.rows[name].Value)
}

// await waits until the ear has heard of a value.
func (e *ear) await(t *testing.T, name, want string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for e.value(name) != want {
		select {
		case <-e.heard:
		case <-deadline:
			t.Fatalf("%s is %q, want %q", name, e.value(name), want)
		}
	}
}

// open returns a board and its ear.
func open(t *testing.T, dsn, schema string) (*board.Board, *ear) {
	t.Helper()
	e := newEar()
	b, err := board.Open(dsn, schema, e.hear)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b, e
}

func row(fact string, rank int64, value string) board.Row {
	return board.Row{
		Subject: "s", Fact: fact, Rank: [2]int64{rank}, Said: rank, Value: []byte(value), Expires: time.Now().Add(time.Hour),
	}
}

func TestOneTellsAll(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	a, heardByA := open(t, pgtest.DSN(t), schema)
	a.Tell(row("f", 1, `"early"`))
	b, heardByB := open(t, pgtest.DSN(t), schema)
	heardByB.await(t, "s f", `"early"`)
	for i := range 20 {
		from, to := a, heardByB
		if i%2 == 1 {
			from, to = b, heardByA
		}
		value := fmt.Sprint(i)
		from.Tell(row("f", int64(i+2), value))
		to.await(t, "s f", value)
	}
	if s := a.Status(); !s.Connected || s.Error != "" {
		t.Errorf("status %+v", s)
	}
}

// What was told last in rank holds, whoever tells it when.
func TestRanksHold(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	a, _ := open(t, pgtest.DSN(t), schema)
	b, _ := open(t, pgtest.DSN(t), schema)
	_, heard := open(t, pgtest.DSN(t), schema)
	a.Tell(row("f", 5, `5`))
	heard.await(t, "s f", `5`)
	b.Tell(row("f", 3, `3`))
	b.Tell(row("done", 1, `1`))
	heard.await(t, "s done", `1`)
	heard.await(t, "s f", `5`)
	cleared := row("f", 0, `0`)
	cleared.Cleared = 6
	a.Tell(cleared)
	b.Tell(row("f", 7, `7`))
	heard.await(t, "s f", `7`)
}

// Rows that are told in any order lead to the same board.
func TestToldRowsCommute(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(1, 1))
	for round := range 5 {
		var rows []board.Row
		for i := range 6 {
			r := row("f", dice.Int64N(4), fmt.Sprint(i))
			r.Rank[1] = dice.Int64N(3)
			rows = append(rows, r)
		}
		want := ""
		for range 4 {
			schema := pgtest.Schema()
			b, heard := open(t, pgtest.DSN(t), schema)
			for i, r := range rows {
				b.Tell(r)
				b.Tell(row("count", int64(i), fmt.Sprint(i)))
				heard.await(t, "s count", fmt.Sprint(i))
			}
			got := heard.value("s f")
			if want == "" {
				want = got
			} else if got != want {
				t.Fatalf("round %d: two orders of %+v: %s and %s", round, rows, want, got)
			}
			dice.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		}
	}
}

// A database that is out of reach holds nobody up; what was told meanwhile is
// written when it is back, and what others told is heard.
func TestOutage(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	gate := newGate(t, pgtest.DSN(t))
	away, heard := open(t, gate.dsn, schema)
	here, _ := open(t, pgtest.DSN(t), schema)
	here.Tell(row("a", 1, `1`))
	heard.await(t, "s a", `1`)

	gate.close()
	awaitStatus(t, away, func(s board.Status) bool { return !s.Connected })
	if s := away.Status(); s.Error == "" || time.Since(s.Since) > time.Minute {
		t.Errorf("status %+v", s)
	}
	for i := range 10 {
		away.Tell(row("b", int64(i), fmt.Sprint(i)))
	}
	if s := away.Status(); s.Untold != 1 {
		t.Errorf("%d facts are untold, want the newest of one", s.Untold)
	}
	here.Tell(row("a", 2, `2`))

	gate.open(t)
	heard.await(t, "s a", `2`)
	heard.await(t, "s b", `9`)
	awaitStatus(t, away, func(s board.Status) bool { return s.Connected && s.Untold == 0 })
}

func awaitStatus(t *testing.T, b *board.Board, is func(board.Status) bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.After(time.Minute); !is(b.Status()); {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("status %+v", b.Status())
		}
	}
}

func TestNoDatabaseAtAll(t *testing.T) {
	t.Parallel()
	b, err := board.Open("host=127.0.0.1 port=1 user=nobody connect_timeout=1", "usher", func([]board.Row) { t.Error("heard something") })
	if err != nil {
		t.Fatal(err)
	}
	b.Tell(row("f", 1, `1`))
	awaitStatus(t, b, func(s board.Status) bool { return s.Error != "" && s.Untold == 1 })
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestExpiredRowsAreForgotten(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	b, _ := open(t, pgtest.DSN(t), schema)
	old := row("old", 1, `1`)
	old.Expires = time.Now().Add(-time.Second)
	b.Tell(old)
	b.Tell(row("new", 1, `1`))
	awaitStatus(t, b, func(s board.Status) bool { return s.Connected && s.Untold == 0 })
	_, heard := open(t, pgtest.DSN(t), schema) // which forgets in its first turn
	heard.await(t, "s new", `1`)
	if got := heard.value("s old"); got != "" {
		t.Errorf("heard %q of what has expired", got)
	}
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }() // is not used any more
	last, _ := open(t, pgtest.DSN(t), schema)
	awaitStatus(t, last, func(s board.Status) bool { return s.Connected })
	rows, err := conn.Query(t.Context(), "SELECT fact FROM "+schema+".keys_fact")
	if err != nil {
		t.Fatal(err)
	}
	facts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || !reflect.DeepEqual(facts, []string{"new"}) {
		t.Errorf("rows of %v are left (%v), want that of new", facts, err)
	}
}

func TestManyBoardsPrepareOneSchema(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	var boards []*board.Board
	for i := range 8 {
		b, _ := open(t, pgtest.DSN(t), schema)
		b.Tell(row(fmt.Sprint(i), 1, `1`))
		boards = append(boards, b)
	}
	_, heard := open(t, pgtest.DSN(t), schema)
	for i := range boards {
		heard.await(t, fmt.Sprint("s ", i), `1`)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"usher": true, "a_1": true, "": false, "Usher": false, "x; DROP": false, "1a": false} {
		if err := board.CheckSchema(name); (err == nil) != ok {
			t.Errorf("schema %q: %v", name, err)
		}
	}
	if err := board.CheckDSN("postgres://[::"); err == nil {
		t.Error("a broken DSN is accepted")
	}
	if _, err := board.Open("host=x", "Not A Name", nil); err == nil {
		t.Error("a broken schema is accepted")
	}
}

// A gate is a way to the database that can be closed.
type gate struct {
	dsn, address, target string

	mu       sync.Mutex
	listener net.Listener
	closed   bool
	conns    []net.Conn
	done     sync.WaitGroup
}

func newGate(t *testing.T, dsn string) *gate {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	port := freeport.ForTest(t)
	g := &gate{
		dsn:     fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=%s sslmode=disable", port, config.User, config.Database),
		address: fmt.Sprintf("127.0.0.1:%d", port), target: fmt.Sprintf("%s:%d", config.Host, config.Port),
	}
	g.open(t)
	t.Cleanup(g.close)
	return g
}

func (g *gate) open(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	g.listener, g.closed = l, false
	g.mu.Unlock()
	g.done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			g.done.Go(func() { g.carry(conn) })
		}
	})
}

func (g *gate) carry(conn net.Conn) {
	db, err := net.Dial("tcp", g.target)
	if err != nil {
		_ = conn.Close() // nobody to talk to
		return
	}
	g.mu.Lock()
	if g.closed {
		_, _ = conn.Close(), db.Close() // came too late
	}
	g.conns = append(g.conns, conn, db)
	g.mu.Unlock()
	copyAll := func(to, from net.Conn) {
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			if n > 0 {
				if _, err := to.Write(buffer[:n]); err != nil {
					break
				}
			}
			if err != nil {
				break
			}
		}
		_, _ = to.Close(), from.Close() // one end has gone
	}
	g.done.Go(func() { copyAll(db, conn) })
	copyAll(conn, db)
}

func (g *gate) close() {
	g.mu.Lock()
	_ = g.listener.Close() // may be closed
	for _, c := range slices.Clone(g.conns) {
		_ = c.Close() // may be closed
	}
	g.conns, g.closed = nil, true
	g.mu.Unlock()
	g.done.Wait()
}

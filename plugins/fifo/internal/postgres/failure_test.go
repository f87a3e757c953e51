package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// ask returns a request for the only slot there is.
func ask(id string, arrival int64) *policy.AdmitRequest {
	return &policy.AdmitRequest{
		Attempt: 1, Candidates: []policy.Candidate{{ID: "any"}},
		Request: &policy.Request{
			ID: id, Arrival: arrival, Scopes: []policy.Scope{{ID: "fleet", Kind: policy.ScopeConcurrency, Limit: 1}},
		},
	}
}

func admit(t *testing.T, s *postgres.Store, req *policy.AdmitRequest) policy.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := s.Admit(ctx, req, queue.Rules{})
	if err != nil {
		t.Fatalf("%s: Admit = %v", req.Request.ID, err)
	}
	return lease
}

func release(t *testing.T, leases ...policy.Lease) {
	t.Helper()
	for _, lease := range leases {
		if err := lease.Release(t.Context(), policy.Outcome{}); err != nil {
			t.Error(err)
		}
	}
}

// line asks for the slot, and returns when the request waits for it. The channel
// gets the lease.
func line(t *testing.T, s *postgres.Store, req *policy.AdmitRequest) <-chan policy.Lease {
	t.Helper()
	waits, leases := make(chan struct{}), make(chan policy.Lease, 1)
	var once sync.Once
	req.Waiting = func(int) { once.Do(func() { close(waits) }) }
	go func() {
		lease, err := s.Admit(context.Background(), req, queue.Rules{})
		if err != nil {
			t.Errorf("%s: Admit = %v", req.Request.ID, err)
			close(leases)
			return
		}
		leases <- lease
	}()
	select {
	case <-waits:
	case <-time.After(patience):
		t.Fatalf("%s does not wait", req.Request.ID)
	}
	return leases
}

func isWaiting(t *testing.T, leases <-chan policy.Lease, d time.Duration) {
	t.Helper()
	select {
	case <-leases:
		t.Fatal("runs, want it to wait")
	case <-time.After(d):
	}
}

// Connections are cut at random, those of the log and those of the listeners,
// while they are used: no limit is exceeded, nobody is passed, nothing is left.
func TestCutConnectionsChangeNothing(t *testing.T) {
	t.Parallel()
	schema, l := pgtest.Schema(), newLoad(t, 2)
	proxy := startProxy(t)
	stores := []*postgres.Store{openAt(t, proxy.dsn(), schema), openAt(t, proxy.dsn(), schema)}
	keepAtOnce(stores)
	for i, s := range stores { // the schema is there, and both have joined
		req := ask(fmt.Sprint("first", i), 0)
		req.Request.Scopes = nil
		release(t, admit(t, s, req))
	}
	done := make(chan struct{})
	var cutter, clients sync.WaitGroup
	cutter.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Duration(20+rand.IntN(150)) * time.Millisecond):
				proxy.cut()
			}
		}
	})
	for i, s := range stores {
		clients.Go(func() { l.run(fmt.Sprint("s", i, "-"), s, 8, 60) })
	}
	clients.Wait()
	close(done)
	cutter.Wait()
	for _, s := range stores { // so many cuts in a row may look like an outage
		waitFor(t, func() bool { h, _ := s.Health(); return !h.Away })
	}
	agree(t, stores)
	l.check(schema)
	t.Logf("%d cuts", proxy.cuts)
	for _, s := range stores {
		l.free(s)
		agree(t, stores)
	}
}

// Connections are ended by the server, the listeners' first: who waits is served
// nevertheless, and soon the listeners are back.
func TestTerminatedBackends_B114(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	a, b := open(t, schema), open(t, schema)
	listening(t, a, b)
	conn := connect(t)
	for i, which := range []string{"LISTEN usher_fifo_" + schema, "%" + schema + ".%"} {
		lease := admit(t, a, ask(fmt.Sprint("a", i), int64(2*i+1)))
		waits := line(t, b, ask(fmt.Sprint("b", i), int64(i+1)))
		var ended int
		err := conn.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE query LIKE $1 AND pid <> pg_backend_pid()`, which).Scan(&ended)
		if err != nil || ended == 0 {
			t.Fatalf("ended %d backends that said %q, %v", ended, which, err)
		}
		release(t, lease)
		release(t, <-waits)
	}
	listening(t, a, b)
}

// listening returns when notifications come to all of stores.
func listening(t *testing.T, stores ...*postgres.Store) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for _, s := range stores {
		for ; !s.Listening(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("nobody listens")
			}
		}
	}
}

// A store that is out of reach refuses quickly and says why. Who runs and who
// waits goes on when it is back.
func TestStoreAway_B128(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t)
	s := openAt(t, proxy.dsn(), pgtest.Schema())
	lease := admit(t, s, ask("runs", 1))
	waits := line(t, s, ask("waits", 2))
	proxy.close()
	quickest := time.Hour // the machine may be busy: one of them shows that it is not waited for
	for i := range int64(5) {
		began := time.Now()
		_, err := s.Admit(t.Context(), ask(fmt.Sprint("refused", i), 3+i), queue.Rules{})
		r, ok := errors.AsType[*policy.Rejection](err)
		if !ok || r.Reason != policy.ReasonStoreUnavailable || r.RetryAfter <= 0 {
			t.Fatalf("Admit = %v, want %s", err, policy.ReasonStoreUnavailable)
		}
		quickest = min(quickest, time.Since(began))
	}
	if quickest > time.Second/2 {
		t.Errorf("refused after %v at least", quickest)
	}
	release(t, lease)
	proxy.open()
	release(t, <-waits)
	release(t, admitSoon(t, s))
}

// admitSoon asks until the store is back.
func admitSoon(t *testing.T, s *postgres.Store) policy.Lease {
	t.Helper()
	for end, i := time.Now().Add(patience), int64(0); ; i++ {
		lease, err := s.Admit(t.Context(), ask(fmt.Sprint("after", i), 100+i), queue.Rules{})
		if err == nil {
			return lease
		}
		if time.Now().After(end) {
			t.Fatalf("the store does not come back: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Invariant 14: a replica that others took for dead brings back what it runs, and its waiters
// keep their places.
func TestFencedReplicaComesBack(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	a, b := open(t, schema), open(t, schema)
	runs := admit(t, a, ask("a1", 1))
	first := line(t, a, ask("a2", 2))
	second := line(t, b, ask("b1", 1))
	if _, err := connect(t).Exec(t.Context(), "SELECT "+schema+".leave(1), "+schema+".leave(2)"); err != nil {
		t.Fatal(err)
	}
	third := line(t, a, ask("a3", 3))
	isWaiting(t, second, 1500*time.Millisecond)
	for _, id := range []string{"b1", "a3"} { // a knows them
		waitFor(t, func() bool {
			_, state := a.State()
			return containsTicket(state, id)
		})
	}
	release(t, runs)
	var lease policy.Lease
	for i := range 3 {
		select {
		case lease = <-first:
		case lease = <-second:
		case lease = <-third:
			if i < 2 {
				t.Error("the last one passed another")
			}
		case <-time.After(patience):
			t.Fatal("nobody runs")
		}
		release(t, lease)
	}
}

// After the database was away for longer than a lease, nobody is taken for dead
// before it had the time to come back.
func TestReplicasSurviveAnAbsentDatabase(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	a, b := open(t, schema), open(t, schema)
	lease := admit(t, a, ask("a1", 1))
	waits := line(t, b, ask("b1", 1))
	if _, err := connect(t).Exec(t.Context(), "UPDATE "+schema+".replica SET expires = now() - interval '1 minute'"); err != nil {
		t.Fatal(err)
	}
	isWaiting(t, waits, 4*time.Second)
	release(t, lease)
	release(t, <-waits)
}

// A database that has lost the end of the log, as a standby may that takes over,
// learns from the replicas what runs before it lets anybody start.
func TestLogThatLostItsEnd(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	a, b := open(t, schema), open(t, schema)
	lease := admit(t, a, ask("a1", 1))
	waits := line(t, b, ask("b1", 1))
	if _, err := connect(t).Exec(t.Context(), "DELETE FROM "+schema+".entry"); err != nil {
		t.Fatal(err)
	}
	isWaiting(t, waits, 2*postgres.HoldFor)
	release(t, lease)
	release(t, <-waits)
	release(t, admit(t, a, ask("a2", 2)))
	agree(t, []*postgres.Store{a, b})
}

// A process that is started again takes over what its host still runs, although
// the store believes that the old one lives.
func TestRestoreTakesOver(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	old, young, other := open(t, schema), open(t, schema), open(t, schema)
	run, wait := ask("runs", 1), ask("waits", 2)
	admit(t, old, run) // is never released
	gone, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = old.Admit(gone, wait, queue.Rules{}) }() // is never used
	for {
		if _, state := old.State(); len(state) > 0 && containsTicket(state, "waits") {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	later := line(t, other, ask("later", 1))
	held := policy.Held{Request: run.Request, Attempt: 1, Candidate: run.Candidates[0]}
	leases, err := young.Restore(t.Context(), []policy.Held{held}, []policy.AdmitRequest{*wait}, queue.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	again := ask("waits", 2)
	waits := line(t, young, again)
	isWaiting(t, waits, 100*time.Millisecond)
	release(t, leases...)
	lease := <-waits
	isWaiting(t, later, 100*time.Millisecond)
	release(t, lease)
	release(t, <-later)
}

// Invariant 14: what a killed process holds and waits for is free when its lease has
// ended, and what one holds that ends is free before.
func TestDeadReplicaLosesItsLeases_B42(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	survivor := open(t, schema)
	other := openUnclosed(t, pgtest.DSN(t), schema)
	admit(t, other, ask("ends", 1))
	waits := line(t, survivor, ask("next", 1))
	began := time.Now()
	if err := other.Close(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, <-waits)
	if took := time.Since(began); took >= postgres.Lease {
		t.Errorf("what a process held that has ended was free after %v", took)
	}

	process, _ := startReplica(t, schema)
	waits = line(t, survivor, ask("after the killed", 2))
	isWaiting(t, waits, 200*time.Millisecond)
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	lease := <-waits
	took := time.Since(began)
	t.Logf("what a killed process held was free after %v", took)
	if took > patience {
		t.Errorf("what a killed process held was free after %v", took)
	}
	release(t, lease)
	release(t, admit(t, survivor, ask("last", 3)))
}

// A stream that runs for longer than the lease of its replica keeps its slot.
func TestLongStreamKeepsItsSlot_B124(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	a, b := open(t, schema), open(t, schema)
	lease := admit(t, a, ask("long", 1))
	waits := line(t, b, ask("waits", 1))
	isWaiting(t, waits, postgres.Lease+3*time.Second)
	release(t, lease)
	release(t, <-waits)
}

// replicaEnv makes the test executable a replica that holds the slot and has one
// more waiting, until it is killed.
const replicaEnv = "USHER_TEST_REPLICA"

func startReplica(t *testing.T, schema string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), replicaEnv+"="+schema, "USHER_TEST_DSN="+pgtest.DSN(t))
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Wait() }) // says that it was killed
	t.Cleanup(func() { _ = command.Process.Kill() })
	says := bufio.NewReader(out)
	if line, err := says.ReadString('\n'); err != nil {
		t.Fatalf("the other process said %q, %v", line, err)
	}
	return command, says
}

func replicaMain(schema string) {
	s, err := postgres.Open(os.Getenv("USHER_TEST_DSN"), schema)
	if err != nil {
		panic(err)
	}
	first := ask("killed", 1)
	first.Revoke = func(policy.Reason) { fmt.Println("revoked") }
	if _, err := s.Admit(context.Background(), first, queue.Rules{}); err != nil {
		panic(err)
	}
	req := ask("waits in the killed", 2)
	req.Waiting = func(int) { fmt.Println("ready") }
	_, _ = s.Admit(context.Background(), req, queue.Rules{})
	select {}
}

func containsTicket(state, id string) bool { return strings.Contains(state, `"id":"`+id+`"`) }

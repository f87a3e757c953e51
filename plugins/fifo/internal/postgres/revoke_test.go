package postgres_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/policy"
)

// revocable returns a request for the only slot, and what gets why it is revoked.
func revocable(id string, arrival int64) (*policy.AdmitRequest, <-chan policy.Reason) {
	req, revoked := ask(id, arrival), make(chan policy.Reason, 100)
	req.Revoke = func(why policy.Reason) { revoked <- why }
	return req, revoked
}

// fence lets others take a replica for dead.
func fence(t *testing.T, schema string, s *postgres.Store) {
	t.Helper()
	_, id := s.At()
	if _, err := connect(t).Exec(t.Context(), "SELECT "+schema+".leave($1)", id); err != nil {
		t.Fatal(err)
	}
}

// Invariant 14: what a replica runs that was taken for dead goes on where there is
// room, and is revoked where somebody else has it.
func TestFencedReplicaRunsWhereThereIsRoom_B124(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	a, b := open(t, schema), open(t, schema)
	req, revoked := revocable("a1", 1)
	runs := admit(t, a, req)
	fence(t, schema, a)
	waitFor(t, func() bool { // it comes back
		_, id := a.At()
		_, state := b.State()
		return id > 2 && containsTicket(state, "a1")
	})
	waits := line(t, b, ask("b1", 1))
	fence(t, schema, a)
	lease := <-waits
	if why := <-revoked; why != policy.ReasonStoreUnavailable {
		t.Errorf("revoked because of %s", why)
	}
	next := line(t, a, ask("a2", 2))
	release(t, runs) // changes nothing
	isWaiting(t, next, 300*time.Millisecond)
	release(t, lease)
	release(t, <-next)
}

// Who hears nothing of the database ends what it runs before others take it for
// dead. Who is told that it is down does not.
func TestSilentDatabase_B124(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{true, false} {
		t.Run(fmt.Sprint("silent=", silent), func(t *testing.T) {
			t.Parallel()
			proxy := startProxy(t)
			s := openAt(t, proxy.dsn(), pgtest.Schema())
			req, revoked := revocable("runs", 1)
			lease := admit(t, s, req)
			began := time.Now()
			if silent {
				proxy.silence(true)
			} else {
				proxy.close()
			}
			select {
			case <-revoked:
				if took := time.Since(began); !silent || took > postgres.Lease*7/10 {
					t.Errorf("revoked after %v", took)
				}
			case <-time.After(postgres.Lease):
				if silent {
					t.Error("is not revoked")
				}
			}
			proxy.silence(false)
			proxy.open()
			release(t, lease)
			release(t, admitSoon(t, s))
		})
	}
}

// A process that was stopped for longer than its lease lasts learns that somebody
// else has its slot as soon as it goes on.
func TestStoppedReplicaIsRevoked(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	survivor := open(t, schema)
	process, says := startReplica(t, schema)
	if err := process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	lease := admit(t, survivor, ask("after", 1))
	if err := process.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if word, err := says.ReadString('\n'); word != "revoked\n" {
		t.Errorf("the other process said %q, %v", word, err)
	}
	release(t, lease)
}

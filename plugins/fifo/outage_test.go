package fifo_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/pgserver"
	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/policytest"
)

// startServer starts a server that the test may harm.
func startServer(t *testing.T, start func() (*pgserver.Server, error)) *pgserver.Server {
	t.Helper()
	s, err := start()
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

// A standby is found by validation. A replica that was given one all the same says so, and
// goes on by itself when it becomes the primary.
func TestAStandbyThatBecomesThePrimary(t *testing.T) {
	t.Parallel()
	primary := startServer(t, func() (*pgserver.Server, error) { return pgserver.Start("fsync=off") })
	standby := startServer(t, primary.Standby)
	config := fmt.Sprintf(`{"store": "postgres", "dsn": %q}`, standby.DSN())
	at := fmt.Sprintf("the database at 127.0.0.1:%d is a standby", standby.Port())
	if found := define().Validate(json.RawMessage(config)); len(found) != 1 || found[0].Option != "dsn" || !strings.Contains(found[0].Message, at) {
		t.Errorf("Validate = %v, want dsn: %s", found, at)
	}
	p := policytest.Build(t, define(), config)
	eventually(t, p, at, func(s fifo.Status) bool { return s.Shared.State == "away" && strings.Contains(s.Shared.Error, at) })
	executeAt(t, standby.DSN(), `SELECT pg_promote()`)
	eventually(t, p, "up", func(s fifo.Status) bool { return s.Shared.State == "up" })
	lease, err := p.Admission.Admit(t.Context(), slot("runs"))
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context(), policy.Outcome{}); err != nil {
		t.Error(err)
	}
}

// Tables that go away while replicas run are said to be missing, and used again when
// they are back.
func TestMissingTables(t *testing.T) {
	t.Parallel()
	server := startServer(t, func() (*pgserver.Server, error) { return pgserver.Start("fsync=off") })
	p := policytest.Build(t, define(), fmt.Sprintf(`{"store": "postgres", "dsn": %q}`, server.DSN()))
	eventually(t, p, "up", func(s fifo.Status) bool { return s.Shared.State == "up" })
	executeAt(t, server.DSN(), `ALTER SCHEMA usher RENAME TO elsewhere`)
	const want = `schema: tables or functions that were there are missing in schema "usher" of database "postgres"`
	eventually(t, p, want, func(s fifo.Status) bool { return s.Shared.State == "away" && strings.Contains(s.Shared.Error, want) })
	executeAt(t, server.DSN(), `ALTER SCHEMA elsewhere RENAME TO usher`)
	eventually(t, p, "up", func(s fifo.Status) bool { return s.Shared.State == "up" })
}

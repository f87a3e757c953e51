package postgres_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/storetest"
)

func TestMain(m *testing.M) {
	if schema := os.Getenv(replicaEnv); schema != "" {
		replicaMain(schema)
	}
	postgres.StepTimeout = patience / 3 // the machine may be busy
	pgtest.Main(m, func() error { return goleak.Find() })
}

// patience is how long something may take that should take no time.
const patience = time.Minute

// All invariants, with one replica.
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Test(t, func(t *testing.T) fifo.Store { return open(t, pgtest.Schema()) })
}

// The same where credits come back as soon as nobody waits.
func TestStoreWithCredits(t *testing.T) {
	t.Parallel()
	storetest.Test(t, func(t *testing.T) fifo.Store {
		s := open(t, pgtest.Schema())
		s.KeepAtOnce()
		return s
	})
}

// open returns one replica of the store in a schema.
func open(t testing.TB, schema string) *postgres.Store {
	t.Helper()
	return openAt(t, pgtest.DSN(t), schema)
}

func openAt(t testing.TB, dsn, schema string) *postgres.Store {
	t.Helper()
	s := openUnclosed(t, dsn, schema)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func openUnclosed(t testing.TB, dsn, schema string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(dsn, schema)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

package postgres_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/plugins/fifo/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

// All invariants.
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Test(t, func(t *testing.T) fifo.Store { return open(t, pgtest.Schema()) })
}

// open returns one replica of the store in a schema.
func open(t testing.TB, schema string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(pgtest.DSN(t), schema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

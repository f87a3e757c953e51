package outage_test

import (
	"context"
	"testing"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/plugins/fifo/internal/outage"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/storetest"
)

// While the shared store answers, it keeps its invariants as it does alone.
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Test(t, func(t *testing.T) fifo.Store {
		store, err := postgres.Open(pgtest.DSN(t), pgtest.Schema())
		if err != nil {
			t.Fatal(err)
		}
		ladder := outage.New(store)
		t.Cleanup(func() {
			ladder.Close()
			if err := store.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return outage.Store{Ladder: ladder, Mode: outage.Local}
	})
}

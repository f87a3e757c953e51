package fifo

import (
	"context"
	"sync"

	"github.com/usherproxy/usher/plugins/fifo/internal/outage"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
)

// A database is where a store for several replicas is.
type database struct{ dsn, schema string }

// Databases are the stores that instances use, each once, so that a reload of
// the configuration finds its store as it was. The zero value has none.
type databases struct {
	mu   sync.Mutex
	used map[database]*used
}

// A used store is closed when its last user has gone.
type used struct {
	store  *postgres.Store
	ladder *outage.Ladder // nil while nobody goes on without the store
	users  int
}

// open returns the store of a database, for an instance that does so if the database
// is out of reach, and how to end its use.
func (d *databases) open(db database, mode outage.Mode) (*shared, func(context.Context) error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u, ok := d.used[db]
	if !ok {
		store, err := postgres.Open(db.dsn, db.schema)
		if err != nil {
			return nil, nil, err
		}
		if d.used == nil {
			d.used = make(map[database]*used)
		}
		u = &used{store: store}
		d.used[db] = u
	}
	u.users++
	s := &shared{Store: u.store, postgres: u.store, mode: mode, schema: db.schema}
	if mode != outage.Closed {
		if u.ladder == nil {
			u.ladder = outage.New(u.store)
		}
		s.Store, s.ladder = outage.Store{Ladder: u.ladder, Mode: mode}, u.ladder
	}
	return s, func(ctx context.Context) error { return d.leave(ctx, db) }, nil
}

func (d *databases) leave(ctx context.Context, db database) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.used[db]
	if u.users--; u.users > 0 {
		return nil
	}
	delete(d.used, db)
	if u.ladder != nil {
		u.ladder.Close()
	}
	return u.store.Close(ctx)
}

// A shared store is one in a database as an instance sees it.
type shared struct {
	Store
	postgres *postgres.Store
	ladder   *outage.Ladder // nil in mode closed
	mode     outage.Mode
	schema   string
}

package fifo

import (
	"context"

	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
)

// Migrate makes the tables of store "postgres" in a schema of a database, or
// brings them to the newest version, and returns the numbers of their version
// before and after. Replicas do the same by themselves when they start; this is for
// those whose user may not. It may be called at any time, and by several at once.
func Migrate(ctx context.Context, dsn, schema string) (before, after int, err error) {
	return postgres.Migrate(ctx, dsn, schema)
}

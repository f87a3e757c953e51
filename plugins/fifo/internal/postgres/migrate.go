package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed sql/*.sql
var migrations embed.FS

// Migrate brings a schema of a database to the newest version, which every store
// does by itself, too, and returns the numbers of its version before and after. Its
// error is a [*Problem].
func Migrate(ctx context.Context, dsn, schema string) (before, after int, err error) {
	if err := CheckSchema(schema); err != nil {
		return 0, 0, &Problem{Option: "schema", Text: err.Error(), Certain: true}
	}
	if err := Probe(ctx, dsn, schema); err != nil {
		return 0, 0, err
	}
	db, err := openDatabase(dsn, schema)
	if err != nil {
		return 0, 0, err
	}
	defer db.pool.Close()
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	if before, err = db.version(ctx); err == nil {
		err = migrate(ctx, db.pool, schema)
	}
	if err == nil {
		after, err = db.version(ctx)
	}
	if err != nil {
		return 0, 0, db.explain(err)
	}
	return before, after, nil
}

// migrated asks whether a schema has the table of migrations.
const migrated = `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = $1 AND c.relname = 'migration')`

// version returns the number of the last migration of the schema, or 0.
func (db *database) version(ctx context.Context) (number int, err error) {
	var there bool
	err = db.pool.QueryRow(ctx, migrated, db.schema).Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	err = db.pool.QueryRow(ctx, expand(`SELECT coalesce(max(number), 0) FROM $schema.migration`, db.schema)).Scan(&number)
	return number, err
}

// migrate brings the schema to the newest version. Who comes at the same time
// waits.
func migrate(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	names, err := fs.Glob(migrations, "sql/*.sql") // sorted
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		done, err := prepare(ctx, tx, schema)
		if err != nil {
			return err
		}
		for i := done; i < len(names); i++ {
			if err := migrateOne(ctx, tx, schema, names[i], i+1); err != nil {
				return fmt.Errorf("%s: %w", names[i], err)
			}
		}
		return nil
	})
}

// prepare takes the lock for migrations until the end of tx, and returns how
// many are done.
func prepare(ctx context.Context, tx pgx.Tx, schema string) (done int, err error) {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('usher.fifo migrations', 0))`); err != nil {
		return 0, err
	}
	// What a session remembers of names may be older than the lock, so the catalog is read.
	var there bool
	if err := tx.QueryRow(ctx, migrated, schema).Scan(&there); err != nil {
		return 0, err
	}
	if there {
		return done, tx.QueryRow(ctx, expand(`SELECT coalesce(max(number), 0) FROM $schema.migration`, schema)).Scan(&done)
	}
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, schema).Scan(&there); err != nil {
		return 0, err
	}
	if !there { // who may not create it has had it created
		if _, err := tx.Exec(ctx, expand(`CREATE SCHEMA $schema`, schema)); err != nil {
			return 0, err
		}
	}
	_, err = tx.Exec(ctx, expand(`CREATE TABLE $schema.migration (number integer PRIMARY KEY)`, schema))
	return 0, err
}

func migrateOne(ctx context.Context, tx pgx.Tx, schema, name string, number int) error {
	sql, err := migrations.ReadFile(name)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, expand(string(sql), schema), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, expand(`INSERT INTO $schema.migration VALUES ($1)`, schema), number)
	return err
}

// expand names the schema in a statement. Its name needs no quotes.
func expand(sql, schema string) string { return strings.ReplaceAll(sql, "$schema", schema) }

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
	var there bool
	if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, schema+".migration").Scan(&there); err != nil {
		return 0, err
	}
	if there {
		return done, tx.QueryRow(ctx, expand(`SELECT coalesce(max(number), 0) FROM $schema.migration`, schema)).Scan(&done)
	}
	if err := tx.QueryRow(ctx, `SELECT to_regnamespace($1) IS NOT NULL`, schema).Scan(&there); err != nil {
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

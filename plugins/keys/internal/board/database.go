package board

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed sql/*.sql
var statements embed.FS

// statement returns a statement of the folder sql.
func statement(name string) string {
	sql, err := statements.ReadFile("sql/" + name)
	if err != nil {
		panic(err) // it is part of the program
	}
	return string(sql)
}

var (
	tellSQL   = statement("tell.sql")
	readSQL   = statement("read.sql")
	forgetSQL = statement("forget.sql")
)

// A database is a schema as one process reaches it. Each statement stands alone
// and needs nothing of a session.
type database struct {
	pool   *pgxpool.Pool
	schema string
}

// openDatabase connects when it is needed, not now.
func openDatabase(dsn, schema string) (*database, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 1 // that of the listener comes on top
	config.ConnConfig.ConnectTimeout = stepTimeout
	// Named statements do not survive a pooler that changes sessions.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	return &database{pool, schema}, nil
}

// expand names the schema in a statement. Its name needs no quotes.
func (db *database) expand(sql string) string { return strings.ReplaceAll(sql, "$schema", db.schema) }

// tell writes rows, each fact once.
func (db *database) tell(ctx context.Context, rows []Row) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	n := len(rows)
	subjects, facts, values := make([]string, n), make([]string, n), make([]string, n)
	rank1, rank2, said, cleared := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	expires := make([]time.Time, n)
	for i, r := range rows {
		subjects[i], facts[i], values[i] = r.Subject, r.Fact, string(r.Value)
		rank1[i], rank2[i], said[i], cleared[i], expires[i] = r.Rank[0], r.Rank[1], r.Said, r.Cleared, r.Expires
	}
	if _, err := db.pool.Exec(ctx, db.expand(tellSQL), subjects, facts, rank1, rank2, said, cleared, values, expires); err != nil {
		return err
	}
	// A notification is a hint only, and does not wait for the disk.
	_, err := db.pool.Exec(ctx, `SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, '')`, db.topic())
	return err
}

// A changedRow is a row with when it changed.
type changedRow struct {
	Row
	changed time.Time
}

// read returns what has changed since an instant.
func (db *database) read(ctx context.Context, since time.Time) ([]changedRow, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	rows, err := db.pool.Query(ctx, db.expand(readSQL), since)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(found pgx.CollectableRow) (changedRow, error) {
		var r changedRow
		var value string
		err := found.Scan(&r.Subject, &r.Fact, &r.Cleared, &value, &r.changed)
		r.Value = []byte(value)
		return r, err
	})
}

func (db *database) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if _, err := db.pool.Exec(ctx, db.expand(forgetSQL)); err != nil {
		return fmt.Errorf("forget: %w", err)
	}
	return nil
}

// topic is what replicas listen to.
func (db *database) topic() string { return "usher_keys_" + db.schema }

// migrate brings the schema to the newest version. Who comes at the same time
// waits.
func (db *database) migrate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*stepTimeout)
	defer cancel()
	names, err := fs.Glob(statements, "sql/0*.sql") // sorted
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		done, err := db.prepare(ctx, tx)
		if err != nil {
			return err
		}
		for i := done; i < len(names); i++ {
			sql, err := statements.ReadFile(names[i])
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, db.expand(string(sql)), pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("%s: %w", names[i], err)
			}
			if _, err := tx.Exec(ctx, db.expand(`INSERT INTO $schema.keys_migration VALUES ($1)`), i+1); err != nil {
				return err
			}
		}
		return nil
	})
}

// prepare takes the lock for migrations until the end of tx, and returns how
// many are done.
func (db *database) prepare(ctx context.Context, tx pgx.Tx) (done int, err error) {
	// Policies that share a schema may come at the same time.
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('usher.keys migrations', 0))`); err != nil {
		return 0, err
	}
	var there bool
	if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, db.schema+".keys_migration").Scan(&there); err != nil {
		return 0, err
	}
	if there {
		return done, tx.QueryRow(ctx, db.expand(`SELECT coalesce(max(number), 0) FROM $schema.keys_migration`)).Scan(&done)
	}
	if err := tx.QueryRow(ctx, `SELECT to_regnamespace($1) IS NOT NULL`, db.schema).Scan(&there); err != nil {
		return 0, err
	}
	if !there { // who may not create it has had it created
		if _, err := tx.Exec(ctx, db.expand(`CREATE SCHEMA IF NOT EXISTS $schema`)); err != nil {
			return 0, err
		}
	}
	_, err = tx.Exec(ctx, db.expand(`CREATE TABLE $schema.keys_migration (number integer PRIMARY KEY)`))
	return 0, err
}

// listen lets run go round whenever another replica tells that there is news.
// That is a help only: without it the board reads by the clock.
func (b *Board) listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := b.listenOnce(ctx)
		if ctx.Err() == nil {
			logger().Debug("no notifications: reading by the clock", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenAgain):
		}
	}
}

func (b *Board) listenOnce(ctx context.Context) error {
	conn, err := b.db.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // is not used any more
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
		b.kick()
	}
}

// listen connects apart from the pool, and returns when it listens.
func (db *database) listen(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, db.pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+db.topic()); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

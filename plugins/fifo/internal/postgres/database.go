package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// An entry is a row of the log.
type entry struct {
	Seq      int64
	At       int64
	Replica  int64
	Op       int64
	Gone     []int64
	Commands []byte
}

// A database is the log as one process reaches it. Each of its methods is one
// statement and one round trip, and needs nothing of a session.
type database struct {
	pool   *pgxpool.Pool
	schema string
	rules  int // rulesVersion, but in tests
}

// connections is how many a store holds at most: one for the steps, and two for
// what may go on beside them. That of the listener comes on top.
const connections = 3

// openDatabase connects when it is needed, not now.
func openDatabase(dsn, schema string) (*database, error) {
	config, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	// Named statements do not survive a pooler that changes sessions.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	return &database{pool, schema, rulesVersion}, nil
}

func (db *database) join(ctx context.Context, old int64) (id, seq int64, state []byte, err error) {
	err = db.pool.QueryRow(ctx, expand(`SELECT id, seq, state FROM $schema.join($1, $2, $3)`, db.schema),
		old, db.rules, lease).Scan(&id, &seq, &state)
	return id, seq, state, err
}

func (db *database) leave(ctx context.Context, me int64) error {
	_, err := db.pool.Exec(ctx, expand(`SELECT $schema.leave($1)`, db.schema), me)
	return err
}

func (db *database) save(ctx context.Context, seq int64, state []byte) error {
	_, err := db.pool.Exec(ctx, expand(`SELECT $schema.save($1, $2, $3, $4)`, db.schema), db.rules, seq, state, keep)
	return err
}

// everybody is in place of the replicas to wake, when one has left: it may be the
// last one of its rules.
var everybody = []int64{0}

// notify wakes replicas. A notification makes its transaction wait for all
// others that notify, until it is on disk. So it has one of its own, which does
// not wait for the disk.
func (db *database) notify(ctx context.Context, replicas []int64) error {
	ids := make([]string, len(replicas))
	for i, id := range replicas {
		ids[i] = strconv.FormatInt(id, 10)
	}
	_, err := db.pool.Exec(ctx, `SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)`,
		db.topic(), strings.Join(ids, " "))
	return err
}

// topic is what replicas listen to.
func (db *database) topic() string { return "usher_fifo_" + db.schema }

// listen connects apart from the pool, and returns when it listens.
func (db *database) listen(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
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

// ended reports whether err says that the lease of the replica has ended.
func ended(err error) bool { return hasCode(err, "UF001") }

// otherRules returns how many replicas with other rules run, if that is what err
// says, or 0.
func otherRules(err error) int {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || e.Code != "UF002" {
		return 0
	}
	n, _ := strconv.Atoi(e.Detail) // join says how many
	return max(n, 1)
}

func hasCode(err error, code string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == code
}

// The times of the store.
const (
	// lease is how long a replica that does not renew its lease is believed to
	// live. With the time that others take to notice, it is gone within 15 s.
	lease = 12 * time.Second
	// renewEvery is less than what step lets pass before it renews a lease.
	renewEvery = lease / 4
	// holdFor is longer than a replica takes to notice that the log has lost its
	// end, and to tell what it runs.
	holdFor = 2 * renewEvery
	// keep is how long entries are kept that replicas may not have read yet.
	keep = 3 * lease
	// migrateTimeout is how long all migrations may take.
	migrateTimeout = 10 * time.Second
	// awayAfter is how long the store may be out of reach before those who ask
	// are refused.
	awayAfter = time.Second
)

// StepTimeout is how long one statement may take. It is a variable for tests that
// ask more of a busy machine than to answer soon, and must not be changed once a
// store is open.
var StepTimeout = 2 * time.Second

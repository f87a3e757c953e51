package board

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A Row is what is known of one fact.
type Row struct {
	// Subject and Fact name it. Subject is a JSON value.
	Subject, Fact string

	// Rank tells which of two rows of one fact holds: the one of the greater
	// rank, the first number before the second.
	Rank [2]int64

	// Said is when the value was said. What was said up to Cleared does not
	// count any more. Both are Unix nanoseconds.
	Said, Cleared int64

	Value json.RawMessage

	// Expires is from when on nobody needs the row.
	Expires time.Time
}

// A key names a fact.
type key struct{ subject, fact string }

// A Status says how a board fares.
type Status struct {
	// Connected is set if the last try to reach the database went well, and
	// Since is when that changed last.
	Connected bool
	Since     time.Time

	// Error is why it is out of reach, or empty.
	Error string

	// Untold is how many facts wait to be written.
	Untold int
}

// A Board is the facts in one schema of a database, as one process knows them.
type Board struct {
	db     *database
	hear   func([]Row)
	wake   chan struct{}
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	untold map[key]Row
	status Status
}

// The times of a board.
const (
	// readEvery is how often it reads though nobody told that there is news.
	readEvery = 500 * time.Millisecond
	// forgetEvery is how often it looks for what nobody needs.
	forgetEvery = time.Minute
	// listenAgain is how long it waits before it listens again.
	listenAgain = time.Second
	// stepTimeout is how long one statement may take.
	stepTimeout = 2 * time.Second
	// overlap is longer than any statement takes: whatever changed earlier can
	// be seen.
	overlap = 2 * stepTimeout
	// closeTimeout is how long the last facts may take to be written.
	closeTimeout = 700 * time.Millisecond
	// maxTold bounds how many facts are written at once.
	maxTold = 1000
)

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// CheckSchema returns what is wrong with the name of a schema.
func CheckSchema(name string) error {
	if !schemaName.MatchString(name) {
		return fmt.Errorf("%q is not a name of small letters, digits and underscores", name)
	}
	return nil
}

// CheckDSN returns what is wrong with a DSN. It connects to nothing.
func CheckDSN(dsn string) error {
	_, err := pgxpool.ParseConfig(dsn)
	return err
}

// Open returns the board in a schema of a database. It does not wait for the
// database. What is known there, and what others tell, is handed to hear, from
// one goroutine; rows may come more than once.
func Open(dsn, schema string, hear func([]Row)) (*Board, error) {
	if err := CheckSchema(schema); err != nil {
		return nil, err
	}
	db, err := openDatabase(dsn, schema)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &Board{
		db: db, hear: hear, cancel: cancel, wake: make(chan struct{}, 1),
		untold: make(map[key]Row), status: Status{Since: time.Now(), Error: notReached},
	}
	b.done.Go(func() { b.run(ctx) })
	b.done.Go(func() { b.listen(ctx) })
	return b, nil
}

// Close writes what was told and not written yet, if that is possible soon.
func (b *Board) Close(ctx context.Context) error {
	b.cancel()
	b.done.Wait()
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := b.tellAll(ctx); err != nil {
		logger().Warn("what was learned of keys last is not written", "facts", b.Status().Untold, "error", err)
	}
	b.db.pool.Close()
	return nil
}

// Tell makes a row known to all. It does not block.
func (b *Board) Tell(row Row) {
	b.mu.Lock()
	b.untold[key{row.Subject, row.Fact}] = row
	b.mu.Unlock()
	b.kick()
}

// Status says how the board fares.
func (b *Board) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	status := b.status
	status.Untold = len(b.untold)
	return status
}

// kick lets run go round once more.
func (b *Board) kick() {
	select {
	case b.wake <- struct{}{}:
	default: // it will anyway
	}
}

// run writes and reads until the context ends.
func (b *Board) run(ctx context.Context) {
	var r reader
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		err := b.turn(ctx, &r)
		if ctx.Err() == nil {
			b.note(err)
		}
		wake := b.wake
		if err != nil {
			wake = nil // what is told meanwhile waits for the next try
		}
		select {
		case <-ctx.Done():
		case <-wake:
		case <-ticker.C:
		}
	}
}

// A reader knows how far the board has been read.
type reader struct {
	migrated bool
	since    time.Time // by the clock of the database
	seen     map[key]time.Time
	forgot   time.Time
}

// fresh returns those of the rows that were not seen as they are, and notes how
// far has been read.
func (r *reader) fresh(rows []changedRow) []Row {
	var fresh []Row
	seen := make(map[key]time.Time, len(rows))
	for _, row := range rows {
		k := key{row.Subject, row.Fact}
		if !r.seen[k].Equal(row.changed) {
			fresh = append(fresh, row.Row)
		}
		seen[k] = row.changed
		if since := row.changed.Add(-overlap); since.After(r.since) {
			r.since = since
		}
	}
	r.seen = seen
	return fresh
}

// turn writes what was told, and reads what is new.
func (b *Board) turn(ctx context.Context, r *reader) error {
	if !r.migrated {
		if err := b.db.migrate(ctx); err != nil {
			return fmt.Errorf("prepare schema %s: %w", b.db.schema, err)
		}
		r.migrated = true
	}
	if err := b.tellAll(ctx); err != nil {
		return err
	}
	rows, err := b.db.read(ctx, r.since)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if fresh := r.fresh(rows); len(fresh) > 0 {
		b.hear(fresh)
	}
	if now := time.Now(); now.Sub(r.forgot) > forgetEvery {
		r.forgot = now
		return b.db.forget(ctx)
	}
	return nil
}

// tellAll writes what was told.
func (b *Board) tellAll(ctx context.Context) error {
	for {
		rows := b.take()
		if len(rows) == 0 {
			return nil
		}
		if err := b.db.tell(ctx, rows); err != nil {
			b.putBack(rows)
			return fmt.Errorf("tell: %w", err)
		}
	}
}

// take returns some of what is to be written.
func (b *Board) take() []Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rows []Row
	for k, row := range b.untold {
		if len(rows) == maxTold {
			break
		}
		rows = append(rows, row)
		delete(b.untold, k)
	}
	return rows
}

// putBack keeps rows that could not be written, unless newer ones were told.
func (b *Board) putBack(rows []Row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, row := range rows {
		k := key{row.Subject, row.Fact}
		if _, newer := b.untold[k]; !newer {
			b.untold[k] = row
		}
	}
}

// note keeps whether the database can be reached, and logs when that changes.
func (b *Board) note(err error) {
	b.mu.Lock()
	was := b.status
	switch {
	case err == nil && !was.Connected:
		b.status = Status{Connected: true, Since: time.Now()}
	case err != nil:
		b.status.Error = err.Error()
		if was.Connected {
			b.status.Connected, b.status.Since = false, time.Now()
		}
	}
	is := b.status
	b.mu.Unlock()
	switch {
	case is.Connected && !was.Connected:
		logger().Info("what other replicas know of keys is known here")
	case !is.Connected && (was.Connected || was.Error == notReached):
		logger().Warn("the store of keys is out of reach: going on with what is known here", "error", err)
	}
}

// notReached is the error of a board that has not tried yet.
const notReached = "not reached yet"

func logger() *slog.Logger { return slog.Default().With("policy", "keys", "store", "postgres") }

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A database is the server as a benchmark looks at it.
type database struct {
	dsn  string
	pid  int // of the server, or 0 if it is elsewhere
	conn *pgx.Conn
}

func connect(ctx context.Context, dsn string, pid int) (*database, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	return &database{dsn, pid, conn}, nil
}

func (d *database) close(ctx context.Context) error { return d.conn.Close(ctx) }

// version returns the version and the settings that the figures depend on.
func (d *database) version(ctx context.Context) (version string, err error) {
	err = d.conn.QueryRow(ctx, `SELECT format('%s, fsync %s, synchronous_commit %s', current_setting('server_version'),
		current_setting('fsync'), current_setting('synchronous_commit'))`).Scan(&version)
	return version, err
}

// updates measures transactions of one update of one of many rows, as pgbench
// does with -N.
func (d *database) updates(ctx context.Context, clients int, during time.Duration) (perSecond float64, median time.Duration, err error) {
	_, err = d.conn.Exec(ctx, `DROP TABLE IF EXISTS usher_bench;
		CREATE TABLE usher_bench (id int PRIMARY KEY, n bigint) WITH (fillfactor = 50);
		INSERT INTO usher_bench SELECT i, 0 FROM generate_series(1, 1000) i`)
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	latencies, errs := make([][]int64, clients), make([]error, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { latencies[i], errs[i] = d.update(ctx) })
	}
	all.Wait()
	ordered := slices.Sorted(slices.Values(slices.Concat(latencies...)))
	return float64(len(ordered)) / during.Seconds(), quantile(ordered, 0.5), errors.Join(errs...)
}

// update updates until ctx ends.
func (d *database) update(ctx context.Context) (latencies []int64, err error) {
	conn, err := pgx.Connect(ctx, d.dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	for {
		began := time.Now()
		_, err := conn.Exec(ctx, `UPDATE usher_bench SET n = n + 1 WHERE id = $1`, 1+rand.IntN(1000))
		if ctx.Err() != nil {
			return latencies, nil
		}
		if err != nil {
			return nil, err
		}
		latencies = append(latencies, int64(time.Since(began)))
	}
}

// usage is what the server has done. Each statement of a replica is a transaction
// of its own. Nearly all are round trips; what is published shares that of its step.
type usage struct {
	transactions int64
	wal          int64 // bytes
	cpu          int64 // nanoseconds
}

func (u usage) since(before usage) usage {
	return usage{u.transactions - before.transactions, u.wal - before.wal, u.cpu - before.cpu}
}

func (d *database) usage(ctx context.Context) (u usage, err error) {
	err = d.conn.QueryRow(ctx, `SELECT s.xact_commit + s.xact_rollback, pg_current_wal_lsn() - '0/0'
		FROM pg_stat_database s WHERE s.datname = current_database()`).Scan(&u.transactions, &u.wal)
	if err == nil && d.pid > 0 {
		u.cpu, err = serverCPU(d.pid)
	}
	return u, err
}

// serverCPU returns the time that the processors spent on a process and on all that it
// has started, as far as /proc tells.
func serverCPU(pid int) (total int64, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // has ended
		}
		_, rest, ok := strings.Cut(string(data), ") ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 15 {
			return 0, fmt.Errorf("%s: unexpected %q", path, data)
		}
		number := filepath.Base(filepath.Dir(path))
		switch {
		case number == strconv.Itoa(pid):
			total += ticks(fields[11:15]) // with those of sessions that have ended
		case fields[1] == strconv.Itoa(pid):
			total += ticks(fields[11:13])
		}
	}
	return total, nil
}

// ticks returns the sum of times that are counted in hundredths of a second.
func ticks(fields []string) (sum int64) {
	for _, f := range fields {
		n, _ := strconv.ParseInt(f, 10, 64) // the kernel writes numbers
		sum += n * int64(10*time.Millisecond)
	}
	return sum
}

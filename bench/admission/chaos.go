package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/usherproxy/usher/bench/admission/internal/checker"
	"github.com/usherproxy/usher/bench/admission/internal/events"
	"github.com/usherproxy/usher/bench/admission/internal/load"
	"github.com/usherproxy/usher/internal/pgserver"
)

// A chaos is a harm that is done to replicas and their database while they run.
type chaos struct {
	name   string
	during time.Duration // how long the load goes on
	long   bool          // is for those who have time

	// config changes the configuration of the policy, and returns what ends what it
	// started. It may be nil.
	config func(*harm, context.Context, map[string]any) (end func() error, err error)

	// do does the harm. The load has just begun.
	do func(*harm, context.Context) error
}

// harm is what a chaos has to do with.
type harm struct {
	*running
	server *pgserver.Server
	schema string
	conn   *pgx.Conn
}

// settle is how long the load goes on before and after the harm.
const settle = time.Second

// lease is longer than the lease of a replica.
const lease = 14 * time.Second

// chaoses are all that there are.
var chaoses = []chaos{
	{name: "a replica is killed", during: lease + 3*time.Second, do: (*harm).kill},
	{name: "a replica is stopped for longer than its lease", during: lease + 6*time.Second, do: (*harm).freeze},
	{name: "a replica is stopped for a moment", long: true, during: 5 * time.Second, do: (*harm).pause},
	{name: "the database crashes and starts again", during: 6 * time.Second, do: (*harm).crash},
	{name: "connections are cut one by one", long: true, during: 5 * time.Second, do: (*harm).cut},
	{name: "the connections that listen are cut", long: true, during: 4 * time.Second, do: (*harm).cutListeners},
	{name: "a pooler is in between, in transaction mode (B120)", during: 4 * time.Second, config: (*harm).pooler, do: (*harm).cut},
	{name: "deadlocks are provoked", during: 6 * time.Second, do: (*harm).deadlock},
	{name: "the clock of the database jumps", long: true, during: 6 * time.Second, config: (*harm).clock, do: (*harm).jump},
}

// trial returns the trial in which the harm is done.
func (c chaos) trial(ctx context.Context, server *pgserver.Server, config map[string]any) (t trial, end func() error, err error) {
	h := &harm{server: server, schema: config["schema"].(string)}
	end = func() error { return nil }
	if c.config != nil {
		if end, err = c.config(h, ctx, config); err != nil {
			return t, end, err
		}
	}
	t = trial{
		replicas: 3, config: config, patience: checker.DefaultPatience,
		load: load.Random{
			Seed: 1, Callers: 12, Limit: 4, Scopes: 2, Candidates: 2, Hold: 20 * time.Millisecond, During: c.during,
			Cancels: 5, Failovers: 10, Urgent: 10,
		},
	}
	t.disturb = func(r *running) error {
		h.running = r
		time.Sleep(settle)
		return h.connected(ctx, func() error { return c.do(h, ctx) })
	}
	return t, end, nil
}

// connected does something with a connection of an administrator.
func (h *harm) connected(ctx context.Context, do func() error) (err error) {
	if h.conn, err = pgx.Connect(ctx, h.server.DSN()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.conn.Close(ctx)) }()
	return do()
}

// tell tells what was done.
func (h *harm) tell(kind events.Kind, replica int) {
	h.log.Tell(events.Event{At: load.Clock(), Kind: kind, Replica: replica})
}

func (h *harm) kill(context.Context) error {
	err := h.replicas[0].Kill()
	h.tell(events.Killed, 0)
	h.killed[0] = true
	return err
}

func (h *harm) freeze(context.Context) error { return h.stopFor(lease) }
func (h *harm) pause(context.Context) error  { return h.stopFor(2 * time.Second) }

func (h *harm) stopFor(d time.Duration) error {
	h.tell(events.Frozen, 0) // from before it is stopped to after it goes on
	err := h.replicas[0].Process.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	err = errors.Join(err, h.replicas[0].Process.Signal(syscall.SIGCONT))
	h.tell(events.Thawed, 0)
	return err
}

func (h *harm) crash(context.Context) error {
	h.tell(events.Trouble, 0)
	err := h.server.Halt()
	time.Sleep(settle / 2)
	err = errors.Join(err, h.server.Continue())
	h.tell(events.Recovered, 0)
	return err
}

// cut ends a connection of the replicas, one after the other.
func (h *harm) cut(ctx context.Context) error {
	return h.terminate(ctx, 20, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY random() LIMIT 1`)
}

func (h *harm) cutListeners(ctx context.Context) error {
	return h.terminate(ctx, 3, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'`)
}

func (h *harm) terminate(ctx context.Context, times int, sql string) error {
	h.tell(events.Trouble, 0)
	defer h.tell(events.Recovered, 0)
	for range times {
		if _, err := h.conn.Exec(ctx, sql); err != nil {
			return err
		}
		time.Sleep(time.Duration(20+rand.IntN(150)) * time.Millisecond)
	}
	return nil
}

// deadlock takes locks in the other order than replicas do.
func (h *harm) deadlock(ctx context.Context) error {
	h.tell(events.Trouble, 0)
	defer h.tell(events.Recovered, 0)
	if _, err := h.conn.Exec(ctx, `SET deadlock_timeout = '10s'`); err != nil {
		return err // it is the others who find the deadlock
	}
	for range 2 {
		err := pgx.BeginFunc(ctx, h.conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, fmt.Sprintf(`LOCK TABLE %s.entry IN EXCLUSIVE MODE`, h.schema)); err != nil {
				return err
			}
			time.Sleep(settle / 5)
			_, err := tx.Exec(ctx, fmt.Sprintf(`SELECT %s.enter()`, h.schema))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// clock gives the replicas a clock of the database that can be set.
func (h *harm) clock(ctx context.Context, config map[string]any) (end func() error, err error) {
	err = h.connected(ctx, func() error {
		_, err := h.conn.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS skewed; DROP TABLE IF EXISTS skewed.shift CASCADE;
			CREATE TABLE skewed.shift AS SELECT interval '0' AS by;
			CREATE OR REPLACE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
				AS 'SELECT pg_catalog.clock_timestamp() + by FROM skewed.shift'`)
		return err
	})
	config["dsn"] = fmt.Sprint(config["dsn"], " search_path=skewed,pg_catalog")
	return func() error { return nil }, err
}

// jump sets the clock.
func (h *harm) jump(ctx context.Context) error {
	h.tell(events.Trouble, 0)
	defer h.tell(events.Recovered, 0)
	for _, by := range []string{"1 hour", "-1 hour", "5 seconds", "0"} {
		if _, err := h.conn.Exec(ctx, `UPDATE skewed.shift SET by = $1::text::interval`, by); err != nil {
			return err
		}
		time.Sleep(settle)
	}
	return nil
}

// recovery returns how long after the last harm somebody ran again, and how long until
// all keys, for which many wait, were used up to their limits once more, or 0 if that never was.
func recovery(all []events.Event, limit int64) (first, full time.Duration) {
	harms := []events.Kind{events.Killed, events.Thawed, events.Recovered}
	after := int64(math.MaxInt64)
	asked, used, reached := map[string]events.Event{}, map[string]int64{}, map[string]bool{}
	runs := map[int]map[string]string{} // what each replica runs
	for _, e := range all {
		name := fmt.Sprint(e.ID, "/", e.Attempt)
		switch {
		case slices.Contains(harms, e.Kind):
			after, first, full, reached = e.At, 0, 0, map[string]bool{}
			if e.Kind == events.Killed {
				for lost, scope := range runs[e.Replica] {
					used[scope]--
					delete(runs[e.Replica], lost)
				}
			}
		case e.Kind == events.Ask && len(e.Candidates[0]) > 0: // no audit
			asked[name] = e
		case len(asked[name].Candidates) == 0:
		case e.Kind == events.End:
			used[runs[e.Replica][name]]--
			delete(runs[e.Replica], name)
		case e.Kind == events.Run:
			scope := asked[name].Candidates[e.Candidate][0].ID
			used[scope]++
			if runs[e.Replica] == nil {
				runs[e.Replica] = map[string]string{}
			}
			runs[e.Replica][name] = scope
			if e.At > after && first == 0 {
				first = time.Duration(e.At - after)
			}
			if e.At > after && used[scope] == limit && !reached[scope] {
				reached[scope] = true
				full = time.Duration(e.At - after)
			}
		}
	}
	if len(reached) < len(used) {
		full = 0
	}
	return first, full
}

// chaos does all harm there is, so many times, and prints what came of it.
func (b *bench) chaos(ctx context.Context, times int) error {
	if b.server == nil {
		return errors.New("chaos needs a server of its own: leave -store and -dsn alone")
	}
	bad := 0
	for n := range times {
		for _, c := range chaoses {
			t, end, err := c.trial(ctx, b.server, b.options())
			if err != nil {
				return errors.Join(fmt.Errorf("%s: %w", c.name, err), end())
			}
			t.load.Seed = uint64(n)
			report, all, err := t.run(ctx)
			if err = errors.Join(err, end()); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			first, full := recovery(all, t.load.Limit)
			fmt.Fprintf(b.out, "%s: runs again after %s, at the limit after %s\n  %v\n", c.name, short(first), short(full), report)
			if !report.OK() {
				bad++
				if err := b.keep(uint64(n), all); err != nil {
					return err
				}
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d runs were wrong", bad)
	}
	return nil
}

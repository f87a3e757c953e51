package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/usherproxy/usher/bench/admission/internal/fleet"
	"github.com/usherproxy/usher/bench/admission/internal/load"
	"github.com/usherproxy/usher/internal/pgserver"
)

// A bench measures row after row and prints them.
type bench struct {
	store             string
	measure           time.Duration
	replicas, waiters []int
	out               io.Writer

	server   *pgserver.Server // nil if it is another's
	database *database        // nil without one
	updates  float64          // single-row updates a second
	schemas  int
}

// The parts of the benchmark.
const (
	slots    = 64
	parallel = 16
	manyKeys = 1000
)

// open connects to the database, and starts one if there is none.
func (b *bench) open(ctx context.Context, dsn string) (end func() error, err error) {
	fmt.Fprintf(b.out, "%d CPUs, %s\n", runtime.NumCPU(), runtime.Version())
	end = func() error { return nil }
	if b.store != "postgres" {
		return end, nil
	}
	pid := 0
	if dsn == "" {
		if b.server, err = pgserver.Start("max_connections=400"); err != nil {
			return end, err
		}
		dsn, pid, end = b.server.DSN(), b.server.PID(), b.server.Stop
	}
	b.database, err = connect(ctx, dsn, pid)
	return end, err
}

// run measures.
func (b *bench) run(ctx context.Context, parts []string) error {
	if b.database != nil {
		if err := b.reference(ctx); err != nil {
			return err
		}
	}
	for _, part := range parts {
		if err := b.part(ctx, part); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}

// reference measures what everything is compared with.
func (b *bench) reference(ctx context.Context) error {
	version, err := b.database.version(ctx)
	if err != nil {
		return err
	}
	tps, median, err := b.database.updates(ctx, parallel, b.measure/2)
	if err != nil {
		return err
	}
	b.updates = tps
	fmt.Fprintf(b.out, "PostgreSQL %s\nsingle-row updates by %d clients: %.0f/s, p50 %s\n", version, parallel, tps, short(median))
	return nil
}

// part measures one part with each number of replicas.
func (b *bench) part(ctx context.Context, part string) error {
	closed := load.Closed{Warm: time.Second, Measure: b.measure}
	waiters := []int{parallel}
	switch part {
	case "uncontended":
		closed.Limit, closed.HoldLeast = 1<<20, time.Millisecond
		fmt.Fprintf(b.out, "\nuncontended: %d callers, who hold for 1 ms, and a limit that is never reached\n", parallel)
	case "contended":
		closed.Limit, closed.HoldLeast, closed.HoldMost = slots, time.Millisecond, 20*time.Millisecond
		waiters, closed.Warm = b.waiters, 2*time.Second
		fmt.Fprintf(b.out, "\ncontended: %d slots, held for 1 to 20 ms\n", slots)
	case "scopes":
		closed.Limit, closed.Scopes, closed.HoldLeast, closed.HoldMost = 1, manyKeys, time.Millisecond, 20*time.Millisecond
		waiters = []int{1000}
		fmt.Fprintf(b.out, "\n%d scopes of 1 slot, held for 1 to 20 ms\n", manyKeys)
	default:
		return errors.New("no such part; there are uncontended, contended and scopes")
	}
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "replicas\tcallers\tadmissions/s\tx updates\tp50\tp99\thand-off p50\tp99\tslots used\ttrips/adm\tWAL B/adm\tCPU µs/adm\tof database\tfailed\t")
	for _, n := range b.replicas {
		for _, callers := range waiters {
			closed.Callers = max(1, callers/n)
			if err := b.row(ctx, w, n, closed); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

// options returns the configuration of a policy with a store that nobody has used.
func (b *bench) options() map[string]any {
	b.schemas++
	config := map[string]any{"store": b.store, "queue_limit": 0, "max_wait": "0s"}
	if b.database != nil {
		config["dsn"], config["schema"] = b.database.dsn, fmt.Sprintf("bench_%d_%d", time.Now().Unix(), b.schemas)
	}
	return config
}

// row measures one load of some replicas.
func (b *bench) row(ctx context.Context, w io.Writer, replicas int, closed load.Closed) error {
	config, err := json.Marshal(b.options())
	if err != nil {
		return err
	}
	fleet, err := startAll(replicas, load.Job{Config: config, Closed: &closed})
	if err != nil {
		return err
	}
	usage, err := b.watch(ctx, closed)
	reports := make([]*load.Report, len(fleet))
	for i, r := range fleet {
		var reportErr error
		reports[i], reportErr = r.Report()
		err = errors.Join(err, reportErr, r.Close())
	}
	if err != nil {
		return err
	}
	b.print(w, replicas, closed, load.Merge(reports), usage)
	return nil
}

// startAll starts replicas, and lets them begin when all are ready.
func startAll(n int, job load.Job) (all []*fleet.Replica, err error) {
	defer func() {
		if err != nil {
			for _, r := range all {
				err = errors.Join(err, r.Kill())
			}
		}
	}()
	for i := range n {
		job.Replica = i
		r, err := fleet.Start(job)
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	for _, r := range all {
		if err := r.Begin(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// watch returns what the database did while the replicas measured.
func (b *bench) watch(ctx context.Context, closed load.Closed) (usage, error) {
	time.Sleep(closed.Warm)
	if b.database == nil {
		return usage{}, nil
	}
	before, err := b.database.usage(ctx)
	if err != nil {
		return usage{}, err
	}
	time.Sleep(closed.Measure)
	after, err := b.database.usage(ctx)
	return after.since(before), err
}

func (b *bench) print(w io.Writer, replicas int, closed load.Closed, r *load.Report, u usage) {
	n := float64(max(1, len(r.Latency)))
	rate := n / closed.Measure.Seconds()
	handoff := []string{"-", "-", "-"}
	if closed.Scopes == 0 && closed.Callers*replicas > int(closed.Limit) {
		gaps := handoffs(r, int(closed.Limit))
		handoff = []string{
			short(quantile(gaps, 0.5)), short(quantile(gaps, 0.99)),
			fmt.Sprintf("%.3f", float64(r.Used)/float64(closed.Limit)/float64(closed.Measure)),
		}
	}
	ratio := "-"
	if b.updates > 0 {
		ratio = fmt.Sprintf("%.2f", rate/b.updates)
	}
	fmt.Fprintf(w, "%d\t%d\t%.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%.4f\t%.0f\t%.0f\t%.0f\t%d\t\n", replicas, closed.Callers*replicas, rate, ratio,
		short(quantile(r.Latency, 0.5)), short(quantile(r.Latency, 0.99)), handoff[0], handoff[1], handoff[2],
		float64(u.transactions)/n, float64(u.wal)/n, float64(r.CPU)/1000/n, float64(u.cpu)/1000/n, r.Failed)
	if r.Failure != "" {
		fmt.Fprintf(w, "(%s)\t\n", r.Failure)
	}
}

// handoffs returns how long slots stood empty between a release and the
// admission that it made possible, in order. While more wait than there are
// slots, the n-th admission after the first ones needs the n-th release. A gap
// below zero is an admission beyond the limit.
func handoffs(r *load.Report, limit int) []int64 {
	var gaps []int64
	for i := limit; i < len(r.Admitted); i++ {
		gaps = append(gaps, r.Admitted[i]-r.Released[i-limit])
	}
	slices.Sort(gaps)
	return gaps
}

// quantile returns that quantile of an ordered list, or 0 if it is empty.
func quantile(ordered []int64, q float64) time.Duration {
	if len(ordered) == 0 {
		return 0
	}
	return time.Duration(ordered[int(q*float64(len(ordered)-1))])
}

// short returns d with three digits at most.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Microsecond && d > -10*time.Microsecond:
		return d.String()
	case d < 10*time.Millisecond:
		return d.Round(time.Microsecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

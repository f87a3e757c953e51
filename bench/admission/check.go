package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/usherproxy/usher/bench/admission/internal/checker"
	"github.com/usherproxy/usher/bench/admission/internal/events"
	"github.com/usherproxy/usher/bench/admission/internal/fleet"
	"github.com/usherproxy/usher/bench/admission/internal/load"
)

// A trial is a random load of some replicas, whose events are checked.
type trial struct {
	replicas int
	strict   bool
	load     load.Random
	config   map[string]any // of the policy
	patience checker.Patience

	// disturb, if it is not nil, does harm to the replicas while they run.
	disturb func(*running) error
}

// randomTrial returns the trial of a seed. Callers is how many there may be in all.
func randomTrial(seed uint64, callers int, during time.Duration) trial {
	dice := rand.New(rand.NewPCG(seed, 0))
	t := trial{replicas: []int{1, 2, 8}[dice.IntN(3)], strict: dice.IntN(4) == 0, patience: checker.DefaultPatience}
	t.load = load.Random{
		Seed: seed, Limit: []int64{1, 4, 64}[dice.IntN(3)], Changes: dice.IntN(3) == 0,
		Scopes: 1 + dice.IntN(3), Candidates: 1 + dice.IntN(5),
		Hold: time.Duration(1+dice.IntN(30)) * time.Millisecond, During: during,
		Cancels: dice.IntN(2) * 10, Failovers: dice.IntN(2) * 20, Urgent: dice.IntN(2) * 20,
		Rate: int64(dice.IntN(2) * 50), Window: time.Second / 4,
		Callers: max(1, (1+dice.IntN(callers)>>dice.IntN(6))/t.replicas),
	}
	return t
}

func (t trial) String() string {
	order := "best effort"
	if t.strict {
		order = "strict"
	}
	return fmt.Sprintf("%d replicas of %d callers, limit %d (changes %t), rate %d, %d scopes, %d candidates, hold %s, %s; of 100 %d leave, %d fail over, %d are urgent",
		t.replicas, t.load.Callers, t.load.Limit, t.load.Changes, t.load.Rate, t.load.Scopes, t.load.Candidates, t.load.Hold, order,
		t.load.Cancels, t.load.Failovers, t.load.Urgent)
}

// running is a trial that runs.
type running struct {
	folder   string
	replicas []*fleet.Replica
	killed   map[int]bool
	log      *events.Log
}

// run runs the trial, and returns what the checker says of it.
func (t trial) run(ctx context.Context) (report *checker.Report, all []events.Event, err error) {
	if t.strict {
		t.config["order"] = "strict_fifo"
	}
	config, err := json.Marshal(t.config)
	if err != nil {
		return nil, nil, err
	}
	r := &running{killed: map[int]bool{}}
	if r.folder, err = os.MkdirTemp("", "usher-check-"); err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.folder)) }()
	if r.log, err = events.Create(filepath.Join(r.folder, "trial")); err != nil {
		return nil, nil, err
	}
	if err := t.start(r, config); err != nil {
		return nil, nil, err
	}
	if t.disturb != nil {
		err = t.disturb(r)
	}
	if err = errors.Join(err, r.end(), r.log.Close()); err != nil {
		return nil, nil, err
	}
	paths, err := filepath.Glob(filepath.Join(r.folder, "*"))
	if err == nil {
		all, err = events.Read(paths...)
	}
	if err != nil {
		return nil, nil, err
	}
	report, err = checker.Check(all, t.strict, t.patience)
	return report, all, err
}

// start starts the replicas, each with a file for its events.
func (t trial) start(r *running, config json.RawMessage) (err error) {
	for i := range t.replicas {
		l := t.load
		l.Events = filepath.Join(r.folder, fmt.Sprint("replica", i))
		l.Patience = t.patience.Notice + t.patience.Dead
		replica, startErr := fleet.Start(load.Job{Replica: i, Config: config, Random: &l, Audit: t.audit(l.Events)})
		if err = startErr; err != nil {
			break
		}
		r.replicas = append(r.replicas, replica)
	}
	for _, replica := range r.replicas {
		if err == nil {
			err = replica.Begin()
		}
	}
	if err != nil {
		for _, replica := range r.replicas {
			err = errors.Join(err, replica.Kill())
		}
	}
	return err
}

// audit returns what a replica is to do when all are done: to take all that there is.
func (t trial) audit(path string) *load.Audit {
	a := &load.Audit{Patience: t.patience.Dead, Events: path}
	for _, id := range []string{"fleet", "caller:0", "caller:1", "caller:2"} {
		a.Scopes = append(a.Scopes, events.Scope{ID: id, Limit: t.load.Limit})
	}
	for i := range t.load.Candidates {
		a.Scopes = append(a.Scopes, events.Scope{ID: fmt.Sprint("key:", i), Limit: t.load.Limit})
	}
	return a
}

// end waits until all replicas are done, lets the first that lives look at what is left, and
// ends them.
func (r *running) end() (err error) {
	var living []*fleet.Replica
	for i, replica := range r.replicas {
		if !r.killed[i] {
			_, reportErr := replica.Report()
			err = errors.Join(err, reportErr)
			living = append(living, replica)
		}
	}
	if err == nil {
		err = living[0].Check()
	}
	for _, replica := range living {
		err = errors.Join(err, replica.Close())
	}
	return err
}

// check runs random trials, and prints what was found.
func (b *bench) check(ctx context.Context, first uint64, n, callers int) error {
	bad := 0
	for seed := first; seed < first+uint64(n); seed++ {
		t := randomTrial(seed, callers, b.measure)
		t.config = b.options()
		if b.store == "memory" {
			t.replicas = 1
		}
		fmt.Fprintf(b.out, "seed %d: %v\n", seed, t)
		report, all, err := t.run(ctx)
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		fmt.Fprintf(b.out, "  %v\n", report)
		if !report.OK() {
			bad++
			if err := b.keep(seed, all); err != nil {
				return err
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d runs were wrong", bad, n)
	}
	return nil
}

// keep keeps the events of a run for those who want to look.
func (b *bench) keep(seed uint64, all []events.Event) (err error) {
	f, err := os.Create(filepath.Join(os.TempDir(), fmt.Sprintf("usher-check-%d.jsonl", seed)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = fmt.Fprintf(b.out, "  its events are in %s\n", f.Name())
	return errors.Join(err, write(f, all))
}

func write(w io.Writer, all []events.Event) error {
	e := json.NewEncoder(w)
	for _, event := range all {
		if err := e.Encode(event); err != nil {
			return err
		}
	}
	return nil
}

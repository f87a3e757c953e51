package main

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/usherproxy/usher/bench/admission/internal/checker"
	"github.com/usherproxy/usher/bench/admission/internal/fleet"
	"github.com/usherproxy/usher/bench/admission/internal/load"
	"github.com/usherproxy/usher/internal/pgserver"
	"github.com/usherproxy/usher/internal/pgtest"
)

func TestMain(m *testing.M) {
	fleet.Main()
	pgtest.Main(m, func() error { return goleak.Find() })
}

// onPostgres returns a configuration with a store of its own.
func onPostgres(t *testing.T) map[string]any {
	t.Helper()
	return map[string]any{"store": "postgres", "dsn": pgtest.DSN(t), "schema": pgtest.Schema(), "queue_limit": 0, "max_wait": "0s"}
}

// Replicas that are processes, and callers who do all that callers may do: no limit
// is exceeded, nobody is passed, nothing leaks, nobody is forgotten.
func TestReplicasKeepTheirWord(t *testing.T) {
	for seed := range uint64(4) {
		tr := randomTrial(seed, 200, time.Second)
		tr.config = onPostgres(t)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { clean(t, tr) })
	}
}

// clean runs a trial in which nothing may be wrong.
func clean(t *testing.T, tr trial) {
	t.Helper()
	report, all, err := tr.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v: %v", tr, report)
	if report.Ran == 0 {
		t.Error("nobody ran")
	}
	if !report.OK() {
		b := &bench{out: os.Stderr}
		t.Errorf("%v", b.keep(tr.load.Seed, all))
	}
}

// The checker finds what is wrong, of each kind: one that finds nothing says nothing.
func TestCheckerFindsFaults(t *testing.T) {
	for fault, found := range map[load.Fault]func(*checker.Report) []string{
		load.FaultOver:  func(r *checker.Report) []string { return r.Over },
		load.FaultOrder: func(r *checker.Report) []string { return r.Order },
		load.FaultLeak:  func(r *checker.Report) []string { return r.Leaks },
		load.FaultLost:  func(r *checker.Report) []string { return r.Lost },
		load.FaultRate:  func(r *checker.Report) []string { return r.Rates },
		load.FaultRank:  func(r *checker.Report) []string { return r.Rank },
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			tr := trial{
				replicas: 1, config: map[string]any{"queue_limit": 0, "max_wait": "0s"},
				patience: checker.Patience{Notice: load.FaultLate / 2, Dead: time.Second, Fence: time.Second},
				load: load.Random{
					Callers: 20, Limit: 4, Scopes: 2, Candidates: 2, Hold: 10 * time.Millisecond, During: time.Second, Fault: fault,
				},
			}
			switch fault {
			case load.FaultRate:
				tr.load.Rate, tr.load.Window = 2, time.Second
			case load.FaultRank:
				tr.load.Callers = 2 // for whom there is room
			}
			report, _, err := tr.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Log(report)
			if len(found(report)) == 0 {
				t.Errorf("the fault was not found: %v", report)
			}
		})
	}
}

// Whatever is done to a replica or to the database, nothing is wrong. All there is
// to be done takes longer: go run ./bench/admission -chaos 1.
func TestChaos(t *testing.T) {
	for _, c := range chaoses {
		if c.long {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server, err := pgserver.Start("fsync=off")
			if err != nil {
				t.Fatal(err)
			}
			config := map[string]any{"store": "postgres", "dsn": server.DSN(), "schema": "usher", "queue_limit": 0, "max_wait": "0s"}
			tr, end, err := c.trial(t.Context(), server, config)
			if err != nil {
				t.Fatal(err)
			}
			clean(t, tr)
			if err := errors.Join(end(), server.Stop()); err != nil {
				t.Error(err)
			}
		})
	}
}

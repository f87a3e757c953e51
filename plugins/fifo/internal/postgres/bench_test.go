package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// Sixteen requests at a time, of which none has to wait. The first ones are not
// measured.
func BenchmarkUncontended(b *testing.B) {
	for _, replicas := range []int{1, 2, 8} {
		b.Run(fmt.Sprint("replicas=", replicas), func(b *testing.B) { benchmarkUncontended(b, replicas) })
	}
}

func benchmarkUncontended(b *testing.B, replicas int) {
	stores := openMany(b, pgtest.Schema(), replicas)
	var times [16][]time.Duration
	var steps int64
	round := func(n int) {
		steps = transactions(b)
		var wg sync.WaitGroup
		for i := range times {
			times[i] = times[i][:0]
			wg.Go(func() {
				for range n / len(times) {
					times[i] = append(times[i], admitOnce(b, stores[i%replicas], i%replicas))
				}
			})
		}
		wg.Wait()
		steps = transactions(b) - steps
	}
	round(2000)
	b.ResetTimer()
	round(b.N)
	b.StopTimer()
	all := slices.Sorted(slices.Values(slices.Concat(times[:]...)))
	if len(all) == 0 {
		return
	}
	b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1000, "µs-p50")
	b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1000, "µs-p99")
	b.ReportMetric(float64(steps)/float64(len(all)), "transactions/admission")
}

var arrivals atomic.Int64

// admitOnce admits a request that runs for a millisecond, and returns how long it
// took until it ran.
func admitOnce(b *testing.B, s *postgres.Store, replica int) time.Duration {
	req := fleetRequest(replica, int(arrivals.Add(1)), 1000)
	began := time.Now()
	lease, err := s.Admit(b.Context(), req, queue.Rules{})
	took := time.Since(began)
	if err != nil {
		b.Error(err)
		return took
	}
	time.Sleep(time.Millisecond)
	_ = lease.Release(b.Context(), policy.Outcome{})
	return took
}

// transactions returns how many the database has done, but those that ask for it.
func transactions(b *testing.B) (n int64) {
	b.Helper()
	conn := connect(b)
	defer func() { _ = conn.Close(b.Context()) }()
	time.Sleep(1500 * time.Millisecond) // backends tell their numbers once a second
	if err := conn.QueryRow(b.Context(), "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

func openMany(b *testing.B, schema string, n int) []*postgres.Store {
	b.Helper()
	stores := make([]*postgres.Store, n)
	for i := range stores {
		stores[i] = open(b, schema)
	}
	return stores
}

// Many want one of 64 slots, which they hold for 1 to 20 ms.
func BenchmarkContended(b *testing.B) {
	for _, replicas := range []int{1, 2, 8} {
		b.Run(fmt.Sprint("replicas=", replicas), func(b *testing.B) { benchmarkContended(b, replicas, 1000) })
	}
}

func benchmarkContended(b *testing.B, replicas, waiters int) {
	schema := pgtest.Schema()
	stores := openMany(b, schema, replicas)
	var admitted, arrivals, running atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(b.Context(), 4*time.Second)
	defer cancel()
	began := time.Now()
	for i := range waiters {
		wg.Go(func() {
			for ctx.Err() == nil {
				n := int(arrivals.Add(1))
				lease, err := stores[i%replicas].Admit(ctx, fleetRequest(i%replicas, n, 64), queue.Rules{})
				if err != nil {
					return
				}
				if running.Add(1) > 64 {
					b.Error("more than 64 run")
				}
				admitted.Add(1)
				time.Sleep(time.Millisecond + time.Duration(n*7919%20)*time.Millisecond)
				running.Add(-1)
				_ = lease.Release(ctx, policy.Outcome{})
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(admitted.Load())/time.Since(began).Seconds(), "admissions/s")
	b.ReportMetric(float64(len(readLog(b, schema)))/float64(admitted.Load()), "entries/admission")
}

func fleetRequest(replica, n int, limit int64) *policy.AdmitRequest {
	return &policy.AdmitRequest{
		Attempt: 1,
		Request: &policy.Request{
			ID: fmt.Sprintf("r%d-%d", replica, n), Arrival: int64(n + 1),
			Scopes: []policy.Scope{{ID: "fleet", Kind: policy.ScopeConcurrency, Limit: limit}},
		},
		Candidates: []policy.Candidate{{ID: "openai/k1/gpt-4o"}},
	}
}

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

// One request at a time, and none has to wait.
func BenchmarkUncontended(b *testing.B) {
	s := open(b, pgtest.Schema())
	var times []time.Duration
	for i := range b.N {
		began := time.Now()
		lease, err := s.Admit(b.Context(), fleetRequest(0, i, 1000), queue.Rules{})
		if err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(began))
		_ = lease.Release(b.Context(), policy.Outcome{})
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "µs-p50")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "µs-p99")
}

// Many want one of 64 slots, which they hold for 1 to 20 ms.
func BenchmarkContended(b *testing.B) {
	for _, replicas := range []int{1, 2, 8} {
		b.Run(fmt.Sprint("replicas=", replicas), func(b *testing.B) { benchmarkContended(b, replicas, 1000) })
	}
}

func benchmarkContended(b *testing.B, replicas, waiters int) {
	schema := pgtest.Schema()
	stores := make([]*postgres.Store, replicas)
	for i := range stores {
		stores[i] = open(b, schema)
	}
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

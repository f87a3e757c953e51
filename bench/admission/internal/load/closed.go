package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usherproxy/usher/policy"
)

// Closed is a load of callers each of whom asks again as soon as it is done.
type Closed struct {
	// Callers is how many there are in this replica.
	Callers int

	// Scopes is how many scopes of Limit there are besides that of the fleet. A
	// request takes one of them, and if there are none, the fleet's.
	Scopes int

	// Limit is that of each scope.
	Limit int64

	// HoldLeast and HoldMost bound how long a lease is used.
	HoldLeast, HoldMost time.Duration

	// Warm is how long to go on before anything is measured, and Measure how
	// long after that.
	Warm, Measure time.Duration
}

// A Report is what one replica has seen while it measured. All times are in
// nanoseconds, instants by [Clock].
type Report struct {
	Latency  []int64 // of each call of Admit that gave a lease meanwhile
	Admitted []int64 // the instants when leases were given, from the beginning on
	Released []int64 // the instants before their release
	Used     int64   // the sum of the times between them that was measured
	CPU      int64   // of this process
	Failed   int     // calls of Admit that gave none, but for the end
	Failure  string  // the first of them
}

// A meter collects a report. Each caller has its own.
type meter struct {
	Report
	from, to int64
}

func (c *Closed) run(ctx context.Context, a policy.Admitter, replica int) *Report {
	ctx, cancel := context.WithTimeout(ctx, c.Warm+c.Measure)
	defer cancel()
	from := Clock() + int64(c.Warm)
	to := from + int64(c.Measure)
	var cpu int64
	timer := time.AfterFunc(c.Warm, func() { atomic.StoreInt64(&cpu, cpuTime()) })
	defer timer.Stop()
	var arrivals atomic.Int64
	meters := make([]meter, c.Callers)
	var callers sync.WaitGroup
	for i := range meters {
		callers.Go(func() {
			m := &meters[i]
			m.from, m.to = from, to
			random := rand.New(rand.NewPCG(uint64(replica), uint64(i)))
			for ctx.Err() == nil {
				c.call(ctx, a, c.request(random, replica, arrivals.Add(1)), m, random)
			}
		})
	}
	callers.Wait()
	report := &Report{CPU: cpuTime() - atomic.LoadInt64(&cpu)}
	for i := range meters {
		report.add(&meters[i].Report)
	}
	return report
}

func (r *Report) add(o *Report) {
	r.Latency = append(r.Latency, o.Latency...)
	r.Admitted = append(r.Admitted, o.Admitted...)
	r.Released = append(r.Released, o.Released...)
	r.Used += o.Used
	r.Failed += o.Failed
	if r.Failure == "" {
		r.Failure = o.Failure
	}
}

// Merge returns the reports of several replicas as one, with all lists in order.
func Merge(reports []*Report) *Report {
	sum := &Report{}
	for _, r := range reports {
		sum.add(r)
		sum.CPU += r.CPU
	}
	slices.Sort(sum.Latency)
	slices.Sort(sum.Admitted)
	slices.Sort(sum.Released)
	return sum
}

func (c *Closed) request(random *rand.Rand, replica int, arrival int64) *policy.AdmitRequest {
	scopes := []policy.Scope{{ID: "fleet", Kind: policy.ScopeConcurrency, Limit: c.Limit}}
	if c.Scopes > 0 {
		scopes[0].ID = fmt.Sprint("caller:", random.IntN(c.Scopes))
	}
	return &policy.AdmitRequest{
		Attempt:    1,
		Request:    &policy.Request{ID: fmt.Sprintf("r%d-%d", replica, arrival), Arrival: arrival, Scopes: scopes},
		Candidates: []policy.Candidate{{ID: "openai/k1/gpt"}},
	}
}

func (c *Closed) call(ctx context.Context, a policy.Admitter, req *policy.AdmitRequest, m *meter, random *rand.Rand) {
	asked := Clock()
	lease, err := a.Admit(ctx, req)
	admitted := Clock()
	if err != nil {
		m.failed(ctx, err)
		return
	}
	m.Admitted = append(m.Admitted, admitted)
	if admitted >= m.from && admitted < m.to {
		m.Latency = append(m.Latency, admitted-asked)
	}
	hold := c.HoldLeast
	if c.HoldMost > c.HoldLeast {
		hold += time.Duration(random.Int64N(int64(c.HoldMost - c.HoldLeast)))
	}
	time.Sleep(hold)
	released := Clock()
	m.Released = append(m.Released, released)
	m.Used += max(0, min(released, m.to)-max(admitted, m.from))
	_ = lease.Release(context.Background(), policy.Outcome{Disposition: policy.OK}) // tells the store, at last by its end
}

func (m *meter) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	m.Failed++
	if m.Failure == "" {
		m.Failure = err.Error()
	}
	if r, ok := errors.AsType[*policy.Rejection](err); ok {
		select {
		case <-time.After(min(r.RetryAfter, 100*time.Millisecond)):
		case <-ctx.Done():
		}
	}
}

// cpuTime returns the time that the processors spent on this process.
func cpuTime() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

package conformance

import (
	"time"

	"github.com/usherproxy/usher/sdk"
)

// Latencies makes n calls of each kind that p offers, one after the other, and
// returns how long they took, by "select", "admit", "release" and "observe".
// Some calls before them are not counted.
func Latencies(t T, p sdk.Policies, n int) map[string][]time.Duration {
	t.Helper()
	times := make(map[string][]time.Duration)
	timed := func(i int, what string, f func()) {
		begin := time.Now()
		f()
		if i >= 0 {
			times[what] = append(times[what], time.Since(begin))
		}
	}
	o := newOffers(1)
	question, attempts := o.next(6), results(o)
	for i := -min(n, 50); i < n; i++ {
		if p.Selection != nil {
			timed(i, "select", func() { judge(t, p.Selection, question) })
		}
		if p.Admission != nil {
			r := &room{world: o.world, admitter: p.Admission}
			req := r.usual()
			req.NoWait = true
			a := answer{}
			timed(i, "admit", func() { a = r.admit(t.Context(), t, req) })
			if a.err != nil {
				t.Fatalf("Admit: %v, although nothing runs", a.err)
			}
			timed(i, "release", func() { release(t, a.lease) })
		}
		if p.Observer != nil {
			timed(i, "observe", func() { p.Observer.Observe(t.Context(), attempts[max(i, 0)%len(attempts)]) })
		}
	}
	return times
}

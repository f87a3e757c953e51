package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usherproxy/usher/policy"
)

// Admitter returns what every [policy.Admitter] must keep, whatever it limits.
// Each check gets an instance of its own from build.
//
// All requests of a check look alike to the policy, and carry one scope with a
// limit of 4. The checks find out how many of them run at once. A policy whose
// limit is reached earlier is tested at that limit; one that never says no is
// tested only where that does not matter.
func Admitter(build func(t T) policy.Admitter) []Check {
	return inRooms(build, []roomCheck{
		{"a request is admitted and released", admitsAndReleases},
		{"released room is used again", reusesRoom},
		{"one release frees one place", freesOnePlace},
		{"a request that waits says so and gets its turn", waitsForItsTurn},
		{"a caller that leaves is forgotten", forgetsWhoLeaves},
		{"callers that leave at any moment cost no room", losesNoRoom},
		{"an ended context is never held", holdsNothingForEndedContexts},
		{"the limit holds under concurrency", holdsItsLimit},
		{"a thousand waiting requests drain", drains},
		{"a further attempt is admitted under the same ID", admitsFurtherAttempts},
		{"arguments are not changed", leavesArgumentsAlone},
	})
}

// A roomCheck is one thing that a [policy.Admitter] must keep.
type roomCheck struct {
	name  string
	check func(t T, r *room)
}

func inRooms(build func(t T) policy.Admitter, checks []roomCheck) []Check {
	all := make([]Check, len(checks))
	for i, c := range checks {
		all[i] = Check{c.name, func(t T) { c.check(t, newRoom(t, build(t))) }}
	}
	return all
}

func admitsAndReleases(t T, r *room) {
	release(t, r.admitted(t, r.usual(), "nothing runs"))
}

func reusesRoom(t T, r *room) {
	leases := r.fill(t)
	for i := range 100 {
		place := i % len(leases)
		release(t, leases[place])
		leases[place] = r.admitted(t, r.usual(), "a lease was just released")
	}
	release(t, leases...)
}

func freesOnePlace(t T, r *room) {
	leases := r.fill(t)
	release(t, leases[0])
	leases[0] = r.admitted(t, r.usual(), "a lease was just released")
	r.rejected(t, r.usual(), "only one lease was released")
	release(t, leases...)
}

func waitsForItsTurn(t T, r *room) {
	leases := r.fill(t)
	waiting := r.wait(t.Context(), t, r.usual())
	stillWaits(t, waiting, "nothing was released")
	release(t, leases[0])
	leases[0] = gets(t, waiting, "a request that waits, after a release")
	release(t, leases...)
}

func forgetsWhoLeaves(t T, r *room) {
	leases := r.fill(t)
	for range 20 {
		ctx, leave := context.WithCancel(t.Context())
		waiting := r.wait(ctx, t, r.usual())
		leave()
		a := receive(t, waiting, "a request whose caller left")
		if !errors.Is(a.err, context.Canceled) {
			t.Fatalf("a request whose caller left: %s; want %v", a, context.Canceled)
		}
		release(t, leases[0])
		leases[0] = r.admitted(t, r.usual(), "the only request in line has left")
	}
	release(t, leases...)
}

func losesNoRoom(t T, r *room) {
	leases := r.fill(t)
	release(t, leases...)
	var callers sync.WaitGroup
	for range 300 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), rand.N(5*time.Millisecond))
			defer cancel()
			if a := r.admit(ctx, t, r.usual()); a.err == nil {
				release(t, a.lease)
			}
		})
	}
	waitFor(t, &callers, "callers that leave")
	r.hasRoomFor(t, len(leases))
}

func holdsNothingForEndedContexts(t T, r *room) {
	leases := r.fill(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a := receive(t, r.start(ctx, t, r.usual()), "an ended context"); a.err == nil {
		t.Errorf("admitted, although there is no room")
	}
	release(t, leases...)
	if a := receive(t, r.start(ctx, t, r.usual()), "an ended context"); a.err == nil {
		release(t, a.lease) // there was room, so this is an answer, too
	}
	r.hasRoomFor(t, len(leases))
}

func holdsItsLimit(t T, r *room) {
	leases := r.fill(t)
	release(t, leases...)
	var running atomic.Int64
	r.crowd(t, 50, 10, func(lease policy.Lease) {
		if n := running.Add(1); n > int64(len(leases)) {
			t.Errorf("%d requests run; the limit is %d", n, len(leases))
		}
		hold()
		running.Add(-1)
		release(t, lease)
	})
	r.hasRoomFor(t, len(leases))
}

func drains(t T, r *room) {
	const n = 1000
	var admitted atomic.Int64
	r.crowd(t, n, 1, func(lease policy.Lease) {
		admitted.Add(1)
		release(t, lease)
	})
	if admitted.Load() == 0 {
		t.Errorf("none of %d requests was admitted", n)
	}
}

// hold lets other requests come while one runs.
func hold() { time.Sleep(rand.N(2 * time.Millisecond)) }

// crowd lets callers send usual requests, one after the other, and hands their
// leases to use. A policy may reject some of them.
func (r *room) crowd(t T, callers, requests int, use func(policy.Lease)) {
	t.Helper()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range requests {
				if a := r.admit(t.Context(), t, r.usual()); a.err == nil {
					use(a.lease)
				}
			}
		})
	}
	waitFor(t, &all, "concurrent requests")
}

func admitsFurtherAttempts(t T, r *room) {
	req := r.usual()
	for attempt := 1; attempt <= 5; attempt++ {
		req := *req
		req.Attempt = attempt
		release(t, r.admitted(t, &req, "the attempt before it has ended"))
	}
}

func leavesArgumentsAlone(t T, r *room) {
	question := func() *policy.AdmitRequest {
		return r.ask(r.requestNumber(1, r.scope("fleet", fleetLimit)),
			candidate("k1", r.scope("k1", 2)), candidate("k2", r.scope("k2", 2)))
	}
	asked, want := question(), question()
	lease := r.admitted(t, asked, "nothing runs")
	want.NoWait = asked.NoWait // was set for the call
	if !reflect.DeepEqual(asked, want) {
		t.Errorf("Admit changed its argument to %+v, want %+v", asked, want)
	}
	release(t, lease)
	if !reflect.DeepEqual(asked, want) {
		t.Errorf("Release changed the argument of Admit to %+v, want %+v", asked, want)
	}
}

// hasRoomFor checks that as many requests as before may run.
func (r *room) hasRoomFor(t T, n int) {
	t.Helper()
	leases := r.fill(t)
	if len(leases) != n {
		t.Errorf("room for %d requests is left of %d", len(leases), n)
	}
	release(t, leases...)
}

// waitFor waits for goroutines that should end soon.
func waitFor(t T, g *sync.WaitGroup, what string) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		g.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(4 * Patience):
		t.Fatalf("%s: still not all answered", what)
	}
}

package conformance

import (
	"context"

	"github.com/usherproxy/usher/policy"
)

// Restorer returns the checks that a new instance goes on where another one
// stopped. Each instance that build returns must know nothing of the others.
// The checks use the same requests as [Admitter], and skip a policy without a
// limit.
func Restorer(build func(t T) policy.Restorer) []Check {
	checks := []struct {
		name  string
		check func(t T, r *room, limit int)
	}{
		{"nothing to restore", restoresNothing},
		{"running requests count", countsRunning},
		{"more may run than the limit", countsMoreThanTheLimit},
		{"waiting requests keep their order", keepsOrder},
		{"a restored ticket whose caller left", forgetsRestoredTickets},
		{"a restored ticket goes before new ones", keepsPlaceBeforeNewRequests},
	}
	all := make([]Check, len(checks))
	for i, c := range checks {
		all[i] = Check{c.name, func(t T) {
			old := newRoom(t, build(t))
			leases := old.fill(t)
			release(t, leases...)
			c.check(t, newRoom(t, build(t)), len(leases))
		}}
	}
	return all
}

// restore hands n running requests and some waiting ones to the instance.
func (r *room) restore(t T, n int, waiting ...policy.AdmitRequest) []policy.Lease {
	t.Helper()
	running := make([]policy.Held, n)
	for i := range running {
		req := r.usual()
		running[i] = policy.Held{Request: req.Request, Attempt: req.Attempt, Candidate: req.Candidates[0]}
	}
	leases, err := r.admitter.(policy.Restorer).Restore(t.Context(), running, waiting)
	if err != nil {
		t.Fatalf("restore %d running and %d waiting requests: %v", n, len(waiting), err)
	}
	if len(leases) != n {
		t.Fatalf("restored %d leases of %d", len(leases), n)
	}
	for i, lease := range leases {
		if lease == nil {
			t.Fatalf("restored lease %d is nil", i)
		}
	}
	return leases
}

// line returns n usual requests in their order of arrival.
func (r *room) line(n int) []policy.AdmitRequest {
	line := make([]policy.AdmitRequest, n)
	for i := range line {
		line[i] = *r.usual()
	}
	return line
}

func restoresNothing(t T, r *room, limit int) {
	r.restore(t, 0)
	r.hasRoomFor(t, limit)
}

func countsRunning(t T, r *room, limit int) {
	leases := r.restore(t, limit)
	r.rejected(t, r.usual(), "as many requests run as may")
	release(t, leases[0])
	leases[0] = r.admitted(t, r.usual(), "a restored lease was released")
	r.rejected(t, r.usual(), "only one lease was released")
	release(t, leases...)
	r.hasRoomFor(t, limit)
}

func countsMoreThanTheLimit(t T, r *room, limit int) {
	leases := r.restore(t, limit+1)
	r.rejected(t, r.usual(), "more requests run than may")
	release(t, leases[0])
	r.rejected(t, r.usual(), "as many requests run as may")
	release(t, leases[1])
	release(t, r.admitted(t, r.usual(), "one place is free"))
	release(t, leases[2:]...)
	r.hasRoomFor(t, limit)
}

func keepsOrder(t T, r *room, limit int) {
	line := r.line(4)
	leases := r.restore(t, limit, line...)
	answers := make([]<-chan answer, len(line))
	for _, i := range []int{2, 0, 3, 1} { // they ask again in any order
		answers[i] = r.wait(t.Context(), t, &line[i])
	}
	r.servesInOrder(t, leases, answers)
}

func keepsPlaceBeforeNewRequests(t T, r *room, limit int) {
	line := r.line(2)
	leases := r.restore(t, limit, line...)
	fresh := r.wait(t.Context(), t, r.usual())
	second := r.wait(t.Context(), t, &line[1])
	first := r.wait(t.Context(), t, &line[0])
	r.servesInOrder(t, leases, []<-chan answer{first, second, fresh})
}

// servesInOrder releases one lease after the other, and checks that each goes
// to the next of the line.
func (r *room) servesInOrder(t T, leases []policy.Lease, line []<-chan answer) {
	t.Helper()
	for i, next := range line {
		release(t, leases[0])
		leases = append(leases[1:], gets(t, next, "the first in line"))
		for _, later := range line[i+1:] {
			stillWaits(t, later, "another request was before it")
		}
	}
	release(t, leases...)
}

func forgetsRestoredTickets(t T, r *room, limit int) {
	line := r.line(2)
	leases := r.restore(t, limit, line...)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if a := receive(t, r.start(gone, t, &line[0]), "a restored ticket whose caller left"); a.err == nil {
		t.Fatalf("admitted, although there is no room")
	}
	r.servesInOrder(t, leases, []<-chan answer{r.wait(t.Context(), t, &line[1])})
	r.hasRoomFor(t, limit)
}

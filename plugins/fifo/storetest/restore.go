package storetest

import (
	"context"
	"errors"

	"github.com/usherproxy/usher/policy"
)

// restore hands over requests that run or wait elsewhere.
func (s *suite) restore(running, waiting []*policy.AdmitRequest) []policy.Lease {
	s.Helper()
	leases, err := s.tryRestore(running, waiting)
	if err != nil || len(leases) != len(running) {
		s.Fatalf("Restore = %d leases, %v, want %d", len(leases), err, len(running))
	}
	return leases
}

func (s *suite) tryRestore(running, waiting []*policy.AdmitRequest) ([]policy.Lease, error) {
	var runs []policy.Held
	for _, req := range running {
		runs = append(runs, policy.Held{Request: req.Request, Attempt: req.Attempt, Candidate: req.Candidates[0]})
	}
	var waits []policy.AdmitRequest
	for _, req := range waiting {
		waits = append(waits, *req)
	}
	return s.store.Restore(context.Background(), runs, waits, s.rules)
}

func restoreRunning(s *suite) {
	key := concurrency("key:1", 2)
	var run []*policy.AdmitRequest
	for range 3 { // the limit was lowered meanwhile
		run = append(run, s.request(key))
	}
	leases := s.restore(run, nil)
	c := s.waits(s.request(key))
	s.release(leases[0])
	c.stillWaits()
	s.release(leases[1], leases[1])
	s.release(c.admitted(), leases[2])
	s.free(key)
}

func restoreWaiting(s *suite) {
	s.rules.QueueLimit = 1 // which restored ones do not obey
	key := concurrency("key:1", 1)
	run := s.request(key)
	wait := []*policy.AdmitRequest{s.request(key), s.request(key), s.request(key)}
	wait[2].Request.Priority = 1
	leases := s.restore([]*policy.AdmitRequest{run}, wait)
	s.rules.QueueLimit = 0
	newcomer := s.waits(s.request(key))

	var calls []*call
	for _, req := range wait {
		calls = append(calls, s.waits(req))
	}
	lease := leases[0]
	for _, i := range []int{2, 0, 1} {
		newcomer.stillWaits()
		s.release(lease)
		lease = calls[i].admitted()
	}
	s.release(lease)
	s.release(newcomer.admitted())
	s.free(key)
}

// restoreUnsorted restores two that may start at once, the later one first.
func restoreUnsorted(s *suite) {
	key := concurrency("key:1", 1)
	early, late := s.request(key), s.request(key)
	s.restore(nil, []*policy.AdmitRequest{late, early})
	c := s.waits(late)
	s.release(s.ask(early).admitted())
	s.release(c.admitted())
}

// restoreGone asks for a restored place, and for a lease that a restored place
// led to, with a context that has ended.
func restoreGone(s *suite) {
	key := concurrency("key:1", 1)
	first, second, third := s.request(key), s.request(key), s.request(key)
	s.restore(nil, []*policy.AdmitRequest{first, second, third}) // the first runs at once

	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, req := range []*policy.AdmitRequest{second, first} {
		switch lease, err := s.store.Admit(gone, req, s.rules); {
		case err == nil:
			s.release(lease)
		case !errors.Is(err, context.Canceled):
			s.Errorf("Admit = %v, want %v", err, context.Canceled)
		}
	}
	s.release(s.ask(third).admitted())
	s.free(key)
}

func restoreOtherCandidates(s *suite) {
	a, b := concurrency("key:a", 1), concurrency("key:b", 1)
	first, second := s.choice([]policy.Scope{a}, []policy.Scope{b}), s.choice([]policy.Scope{a}, []policy.Scope{b})
	s.restore(nil, []*policy.AdmitRequest{first, second})

	first.Candidates = []policy.Candidate{first.Candidates[1], first.Candidates[0]}
	lease := s.ask(first).admitted()
	if id := first.Candidates[lease.Candidate()].ID; id != "c0" {
		s.Errorf("a lease on %s became one on %s", "c0", id)
	}
	second.Candidates = second.Candidates[:1] // it holds the other one
	c := s.waits(second)
	s.release(lease)
	s.release(c.admitted())
	s.free(a, b)
}

func restoreInUse(s *suite) {
	key := concurrency("key:1", 2)
	req, fresh := s.request(key), s.request(key)
	lease := s.runs(req)
	for _, running := range [][]*policy.AdmitRequest{{fresh, req}, {fresh, fresh}} {
		if leases, err := s.tryRestore(running, nil); err == nil {
			s.Errorf("Restore = %v, want an error", leases)
		}
	}
	s.release(s.runs(fresh), lease)
	s.free(key)
}

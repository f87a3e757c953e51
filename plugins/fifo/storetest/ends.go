package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/usherproxy/usher/policy"
)

// grantRacesTimeout releases a lease just when the one who waits gives up.
func grantRacesTimeout(s *suite) {
	const wait = 3 * time.Millisecond
	s.rules.MaxWait = wait
	key := concurrency("key:1", 1)
	var served int
	for i := range 300 {
		lease := s.runs(s.request(key))
		c := s.waits(s.request(key))
		release := time.NewTimer(wait + time.Duration(i%7-3)*wait/10)
		<-release.C
		s.release(lease)
		if late, err := c.result(); err == nil {
			served++
			s.release(late)
		} else {
			c.refused(policy.ReasonQueueTimeout)
		}
		s.free(key)
	}
	s.Logf("%d of 300 were served", served)
}

func grantRacesCancel(s *suite) {
	key := concurrency("key:1", 1)
	var served int
	for range 300 {
		lease := s.runs(s.request(key))
		c := s.waits(s.request(key))
		var wg sync.WaitGroup
		wg.Go(func() { s.release(lease) })
		wg.Go(c.cancel)
		wg.Wait()
		if late, err := c.result(); err == nil {
			served++
			s.release(late)
		} else if !errors.Is(err, context.Canceled) {
			s.Fatalf("Admit = %v", err)
		}
		s.free(key)
	}
	s.Logf("%d of 300 were served", served)
}

func endedContext(s *suite) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	key := concurrency("key:1", 1)
	if lease, err := s.store.Admit(ctx, s.request(key), s.rules); !errors.Is(err, context.Canceled) {
		s.Errorf("Admit = %v, %v, want %v", lease, err, context.Canceled)
	}
	s.free(key)
}

func ticketInUse(s *suite) {
	key := concurrency("key:1", 1)
	runs := s.request(key)
	lease := s.runs(runs)
	waiting := s.request(key)
	c := s.waits(waiting)
	for _, req := range []*policy.AdmitRequest{runs, waiting} {
		again := *req
		if lease, err := s.ask(&again).result(); err == nil {
			s.Errorf("a ticket in use was admitted again: %v", lease)
		}
	}
	s.release(lease)
	s.release(c.admitted())
	s.release(s.runs(runs)) // not in use any more
	s.free(key)
}

func releaseTwice(s *suite) {
	key := concurrency("key:1", 2)
	lease, other := s.runs(s.request(key)), s.runs(s.request(key))
	s.release(lease, lease)
	next := s.runs(s.request(key))
	s.release(lease)
	s.waits(s.request(key)).leave()
	s.release(next, other)
	s.free(key)
}

func queueFull(s *suite) {
	s.rules.QueueLimit, s.rules.MaxWait = 2, time.Minute
	a, b := concurrency("key:a", 1), concurrency("key:b", 1)
	leases := []policy.Lease{s.runs(s.request(a)), s.runs(s.request(b))}
	calls := []*call{s.waits(s.request(a)), s.waits(s.request(a))}
	if after := s.ask(s.request(a)).refused(policy.ReasonQueueFull); after != time.Minute {
		s.Errorf("retry after %v, want %v while nobody was served", after, time.Minute)
	}
	calls = append(calls, s.waits(s.choice([]policy.Scope{a}, []policy.Scope{b}))) // b has a place

	s.release(leases[0])
	leases[0] = calls[0].admitted()
	calls = append(calls, s.waits(s.request(b)))
	if after := s.ask(s.request(a)).refused(policy.ReasonQueueFull); after <= 0 || after >= time.Minute {
		s.Errorf("retry after %v, want what the pace of the line tells", after)
	}
	for _, c := range calls[1:] {
		c.leave()
	}
	s.release(leases...)
	s.free(a, b)
}

func queueTimeout(s *suite) {
	key := concurrency("key:1", 1)
	lease := s.runs(s.request(key))
	s.rules.MaxWait = 20 * time.Millisecond
	c := s.waits(s.request(key))
	if after := c.refused(policy.ReasonQueueTimeout); after <= 0 || after > 20*time.Millisecond {
		s.Errorf("retry after %v, want at most the longest wait", after)
	}
	s.release(lease)
	s.free(key)
}

func noWait(s *suite) {
	for _, c := range []struct {
		scope  policy.Scope
		reason policy.Reason
	}{
		{concurrency("caller:a", 1), policy.ReasonCallerConcurrency},
		{concurrency("group:g", 1), policy.ReasonCallerConcurrency},
		{concurrency("provider:p", 1), policy.ReasonProviderConcurrency},
		{concurrency("key:1", 1), policy.ReasonKeyConcurrency},
		{concurrency("fleet", 1), policy.ReasonConcurrency},
		{requests("key:1", 1, time.Hour), policy.ReasonKeyRequests},
		{tokens("key:1", 1), policy.ReasonKeyTokens},
		{requests("fleet", 1, time.Hour), policy.ReasonRate},
	} {
		lease := s.runs(s.request(c.scope))
		req := s.request(c.scope)
		req.NoWait = true
		after := s.ask(req).refused(c.reason)
		if rate := c.scope.Window > 0; rate != (after > time.Hour-time.Minute) {
			s.Errorf("%s %s: retry after %v", c.scope.ID, c.scope.Kind, after)
		}
		s.release(lease)
	}
}

func noCandidates(s *suite) {
	req := s.request()
	req.Candidates = nil
	s.ask(req).refused(policy.ReasonNoCandidate)
}

package storetest

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usherproxy/usher/policy"
)

// limitsHold lets many ask for many things, and counts at the users.
func limitsHold(s *suite) {
	scopes := []policy.Scope{
		concurrency("fleet", 5), concurrency("caller:a", 1), concurrency("caller:b", 2),
		concurrency("key:1", 1), concurrency("key:2", 2), concurrency("key:3", 3),
	}
	running := make([]atomic.Int64, len(scopes))
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			for range 40 {
				caller, keys := 1+rand.IntN(2), rand.Perm(3)[:2]
				req := s.choice([]policy.Scope{scopes[3+keys[0]]}, []policy.Scope{scopes[3+keys[1]]})
				req.Request.Scopes = []policy.Scope{scopes[0], scopes[caller]}
				lease := s.ask(req).admitted()
				used := []int{0, caller, 3 + keys[lease.Candidate()]}
				for _, i := range used {
					if n := running[i].Add(1); n > scopes[i].Limit {
						s.Errorf("%s: %d of %d run", scopes[i].ID, n, scopes[i].Limit)
					}
				}
				runtime.Gosched()
				for _, i := range used {
					running[i].Add(-1)
				}
				s.release(lease)
			}
		})
	}
	wg.Wait()
	s.free(scopes...)
}

// chaos lets many ask who leave or lose patience at any moment.
func chaos(s *suite) {
	fleet, keys := concurrency("fleet", 3), []policy.Scope{concurrency("key:1", 1), concurrency("key:2", 2)}
	var running atomic.Int64
	var wg sync.WaitGroup
	for i := range 24 {
		rules := s.rules
		rules.MaxWait = time.Duration(i%4) * time.Millisecond
		rules.MaxPasses = i % 3
		rules.QueueLimit = i % 2 * 10
		wg.Go(func() {
			for range 40 {
				req := s.choice(keys[:1], keys[1:], keys)
				req.Request.Scopes = []policy.Scope{fleet}
				req.Request.Priority = rand.IntN(2)
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(3000))*time.Microsecond)
				lease, err := s.store.Admit(ctx, req, rules)
				cancel()
				if err != nil {
					continue
				}
				if n := running.Add(1); n > fleet.Limit {
					s.Errorf("%d of %d run", n, fleet.Limit)
				}
				runtime.Gosched()
				running.Add(-1)
				s.release(lease)
			}
		})
	}
	wg.Wait()
	s.free(append(keys, fleet)...)
}

// manyRecords ends many requests on one scope while two run on another.
func manyRecords(s *suite) {
	key := concurrency("key:1", 2)
	long := []policy.Lease{s.runs(s.request(key)), s.runs(s.request(key))}
	for range 300 {
		s.release(s.runs(s.request(concurrency("key:2", 1))))
	}
	third := s.waits(s.request(key))
	s.release(long[0])
	s.release(third.admitted(), long[1])
}

func windowOpens(s *suite) {
	const window = 500 * time.Millisecond
	key := requests("key:1", 3, window)
	began := time.Now()
	for range 3 {
		s.release(s.runs(s.request(key)))
	}
	full := time.Now()
	s.release(s.waits(s.request(key)).admitted())
	switch now := time.Now(); {
	case now.Sub(began) < window:
		s.Errorf("4 requests of 3 within %v of %v", now.Sub(began), window)
	case now.Sub(full) > window+patience/2:
		s.Errorf("the window was full for %v of %v", now.Sub(full), window)
	}
}

func tokensSettle(s *suite) {
	key := tokens("key:1", 100)
	first := s.request(key)
	first.Request.InputTokens, first.Request.MaxOutputTokens = 40, 40
	lease := s.runs(first)
	second := s.request(key)
	second.Request.InputTokens = 60
	waiting := s.waits(second)
	s.settle(&policy.Usage{InputTokens: 35, OutputTokens: 5}, lease) // 80 were reserved
	last := waiting.admitted()
	s.settle(&policy.Usage{InputTokens: 60, OutputTokens: 1}, last) // more than reserved
	s.waits(s.request(key)).leave()
}

func unknownUsage(s *suite) {
	key := tokens("key:1", 100)
	req := s.request(key)
	req.Request.InputTokens = 100
	s.settle(nil, s.runs(req))
	s.waits(s.request(key)).leave()
}

func firstRanked(s *suite) {
	a, b := concurrency("key:a", 1), concurrency("key:b", 1)
	for want := range 2 {
		lease := s.runs(s.choice([]policy.Scope{a}, []policy.Scope{b}))
		if got := lease.Candidate(); got != want {
			s.Errorf("candidate %d, want %d", got, want)
		}
		defer s.release(lease)
	}
}

func anyCandidate(s *suite) {
	a, b := concurrency("key:a", 1), concurrency("key:b", 1)
	leases := []policy.Lease{s.runs(s.request(a)), s.runs(s.request(b))}
	c := s.waits(s.choice([]policy.Scope{a}, []policy.Scope{b}))
	s.release(leases[1])
	lease := c.admitted()
	if lease.Candidate() != 1 {
		s.Errorf("candidate %d, want 1", lease.Candidate())
	}
	s.release(leases[0], lease)
	s.free(a, b)
}

// refusalTakesNothing trips the window of a day and looks at that of a minute.
func refusalTakesNothing(s *suite) {
	minute, day := requests("key:1", 3, time.Minute), requests("key:1", 2, 24*time.Hour)
	for range 2 {
		s.release(s.runs(s.request(minute, day)))
	}
	for range 5 {
		req := s.request(minute, day)
		req.NoWait = true
		if after := s.ask(req).refused(policy.ReasonKeyRequests); after < 23*time.Hour || after > 24*time.Hour {
			s.Errorf("retry after %v, want a day", after)
		}
	}
	s.release(s.runs(s.request(minute)))
}

func loweredLimit(s *suite) {
	var leases []policy.Lease
	for range 3 {
		leases = append(leases, s.runs(s.request(concurrency("key:1", 3))))
	}
	c := s.waits(s.request(concurrency("key:1", 1)))
	s.release(leases[:2]...)
	c.stillWaits()
	s.release(leases[2])
	s.release(c.admitted())
	s.free(concurrency("key:1", 1))
}

// loweredBefore lowers a limit that was used up a moment ago and is not any more.
func loweredBefore(s *suite) {
	var leases []policy.Lease
	for range 3 {
		leases = append(leases, s.runs(s.request(concurrency("key:1", 3))))
	}
	s.release(leases...)
	s.free(concurrency("key:1", 3))
	lease := s.runs(s.request(concurrency("key:1", 1)))
	c := s.waits(s.request(concurrency("key:1", 1)))
	s.release(lease)
	s.release(c.admitted())
}

func raisedLimit(s *suite) {
	leases := []policy.Lease{s.runs(s.request(concurrency("key:1", 1)))}
	first, second := s.waits(s.request(concurrency("key:1", 1))), s.waits(s.request(concurrency("key:1", 1)))
	third := s.waits(s.request(concurrency("key:1", 3)))
	leases = append(leases, first.admitted(), second.admitted())
	third.stillWaits()
	s.release(leases...)
	s.release(third.admitted())
}

// olderLimit lets a request that came before a change of the configuration ask
// after one that came later.
func olderLimit(s *suite) {
	old := s.request(concurrency("key:1", 2))
	lease := s.runs(s.request(concurrency("key:1", 1)))
	c := s.waits(old)
	s.release(lease)
	s.release(c.admitted())
}

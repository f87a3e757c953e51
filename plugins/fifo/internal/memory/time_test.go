package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/memory"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

func ask(id int, scope policy.Scope) *policy.AdmitRequest {
	return &policy.AdmitRequest{
		Attempt:    1,
		Request:    &policy.Request{ID: fmt.Sprint("r", id), Arrival: int64(id), Scopes: []policy.Scope{scope}},
		Candidates: []policy.Candidate{{ID: "any"}},
	}
}

func admit(t *testing.T, s *memory.Store, req *policy.AdmitRequest, rules queue.Rules) policy.Lease {
	t.Helper()
	lease, err := s.Admit(t.Context(), req, rules)
	if err != nil {
		t.Fatalf("%s: Admit = %v", req.Request.ID, err)
	}
	return lease
}

func release(t *testing.T, lease policy.Lease) {
	t.Helper()
	if err := lease.Release(context.Background(), policy.Outcome{}); err != nil {
		t.Fatalf("Release = %v", err)
	}
}

// Invariants 2 and 6: a window has room again at the exact instant.
func TestWaitersOfAWindowStartAtTheExactInstant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, began := memory.New(), time.Now()
		scope := policy.Scope{ID: "key:1", Kind: policy.ScopeRequests, Limit: 2, Window: time.Minute}
		for i, want := range []time.Duration{0, 0, time.Minute, time.Minute, 2 * time.Minute} {
			if i == 1 {
				time.Sleep(10 * time.Second)
			}
			if i%2 == 1 {
				want += 10 * time.Second
			}
			release(t, admit(t, s, ask(i, scope), queue.Rules{}))
			if got := time.Since(began); got != want {
				t.Errorf("request %d started after %v, want %v", i, got, want)
			}
		}
	})
}

// Invariant 9: the longest wait is exact, and refusals tell when to come back.
func TestWaitEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, began := memory.New(), time.Now()
		scope := policy.Scope{ID: "fleet", Kind: policy.ScopeConcurrency, Limit: 1}
		lease := admit(t, s, ask(1, scope), queue.Rules{})
		_, err := s.Admit(t.Context(), ask(2, scope), queue.Rules{MaxWait: 7 * time.Second})
		if r, ok := errors.AsType[*policy.Rejection](err); !ok || r.Reason != policy.ReasonQueueTimeout || r.RetryAfter != 7*time.Second {
			t.Errorf("Admit = %v, want %s", err, policy.ReasonQueueTimeout)
		}
		if got := time.Since(began); got != 7*time.Second {
			t.Errorf("the wait ended after %v", got)
		}
		release(t, lease)
	})
}

// Invariant 11: places that nobody asks for are given up, and so are leases
// that they led to.
func TestRestoredPlacesAreGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, began := memory.New(), time.Now()
		scope := policy.Scope{ID: "fleet", Kind: policy.ScopeConcurrency, Limit: 2}
		run := policy.Held{Request: ask(1, scope).Request, Attempt: 1, Candidate: policy.Candidate{ID: "any"}}
		wait := []policy.AdmitRequest{*ask(2, scope), *ask(3, scope), *ask(4, scope)}
		leases, err := s.Restore(t.Context(), []policy.Held{run}, wait, queue.Rules{})
		if err != nil {
			t.Fatal(err)
		}
		release(t, admit(t, s, &wait[0], queue.Rules{})) // its lease passes on to the next, who is away
		last := admit(t, s, ask(5, scope), queue.Rules{})
		if got := time.Since(began); got != memory.AttachWithin {
			t.Errorf("the places were given up after %v, want %v", got, memory.AttachWithin)
		}
		release(t, leases[0])
		release(t, last)
		if n := s.Waits(); n != 0 {
			t.Errorf("%d waits are left", n)
		}
	})
}

// A thousand wait, and one is served each 10 ms.
func TestPositionsAreToldRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waiting = 1000
		s := memory.New()
		scope := policy.Scope{ID: "fleet", Kind: policy.ScopeConcurrency, Limit: 1}
		lease := admit(t, s, ask(0, scope), queue.Rules{})
		var wg sync.WaitGroup
		for i := 1; i <= waiting; i++ {
			req := ask(i, scope)
			var told []int
			var returned bool
			req.Waiting = func(position int) {
				told = append(told, position)
				if returned {
					t.Errorf("%d: told after its end", i)
				}
			}
			wg.Go(func() {
				lease := admit(t, s, req, queue.Rules{})
				returned = true
				checkPositions(t, i, told)
				time.Sleep(10 * time.Millisecond)
				release(t, lease)
			})
			synctest.Wait()
		}
		release(t, lease)
		wg.Wait()
		time.Sleep(memory.TellEvery)
	})
}

func checkPositions(t *testing.T, first int, told []int) {
	t.Helper()
	if len(told) == 0 || told[0] != first {
		t.Errorf("told %v, want %d first", told, first)
	}
	for i := 1; i < len(told); i++ {
		if told[i] >= told[i-1] {
			t.Errorf("told %v, want ever smaller positions", told)
		}
	}
	if most := 11 + int(math.Log(float64(first))/math.Log(10.0/9)); len(told) > most {
		t.Errorf("told %d times from position %d, want at most %d", len(told), first, most)
	}
}

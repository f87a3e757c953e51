package queue_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A site is a queue and its clock.
type site struct {
	*testing.T
	queue  *queue.Queue
	now    time.Time
	serial int64
}

func newSite(t *testing.T) *site {
	epoch := time.Unix(1e9, 0)
	return &site{T: t, queue: queue.New(epoch), now: epoch}
}

func (s *site) admit(rules queue.Rules, scopes ...policy.Scope) (*queue.Ticket, error) {
	s.serial++
	t, _, err := s.queue.Admit(s.now, request(s.serial, scopes, nil), rules)
	return t, err
}

func (s *site) must(rules queue.Rules, scopes ...policy.Scope) *queue.Ticket {
	s.Helper()
	t, err := s.admit(rules, scopes...)
	if err != nil {
		s.Fatal(err)
	}
	return t
}

// Invariant 2, for more takes than are remembered one by one: no span of the
// length of the window sees more than the limit, and room that comes back is
// at most a 1024th of the window late.
func TestWindowIsExactWhateverItRemembers(t *testing.T) {
	t.Parallel()
	const window, limit = time.Minute, 5000
	s, dice := newSite(t), rand.New(rand.NewPCG(1, 2))
	scope := policy.Scope{ID: "key:1", Kind: policy.ScopeRequests, Limit: limit, Window: window}
	var taken []time.Time
	for len(taken) < 6*limit {
		s.now = s.now.Add(time.Duration(dice.ExpFloat64() * float64(window) / limit / 2))
		ticket := s.must(queue.Rules{}, scope)
		if !ticket.Running() {
			next, ok := s.queue.Next()
			if !ok {
				t.Fatal("waits for a window without an alarm")
			}
			if late := next.Sub(taken[len(taken)-limit].Add(window)); late < 0 || late > window/1024 {
				t.Fatalf("room after %d takes is %v late", len(taken), late)
			}
			s.now = next
			s.queue.Tick(next)
		}
		if !ticket.Running() {
			t.Fatal("does not run at the time of the alarm")
		}
		taken = append(taken, s.now)
		if n := len(taken) - limit - 1; n >= 0 && s.now.Sub(taken[n]) < window {
			t.Fatalf("%d takes within %v", limit+1, s.now.Sub(taken[n]))
		}
		s.queue.Release(s.now, ticket, nil)
	}
	if n := s.queue.Takes(); n > 2100 {
		t.Errorf("remembers %d takes", n)
	}
}

// Invariant 2: what is settled after the window has forgotten it counts nowhere.
func TestLateSettlementChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	scope := policy.Scope{ID: "key:1", Kind: policy.ScopeTokens, Limit: 1, Window: time.Second}
	long := s.must(queue.Rules{}, scope)
	s.now = s.now.Add(time.Second)
	s.must(queue.Rules{}, scope)
	s.queue.Release(s.now, long, &policy.Usage{OutputTokens: 100})
	s.now = s.now.Add(time.Second)
	if !s.must(queue.Rules{}, scope).Running() {
		t.Error("tokens of a forgotten take fill the window")
	}
}

// Invariant 9: the line is expected to move as fast as it did while somebody
// waited.
func TestRetryAfterFollowsThePaceOfTheLine(t *testing.T) {
	t.Parallel()
	s, rules := newSite(t), queue.Rules{QueueLimit: 4, MaxWait: time.Minute}
	scope := concurrency("key:1", 1)
	refused := func(want time.Duration) {
		t.Helper()
		_, err := s.admit(rules, scope)
		if r, ok := errors.AsType[*policy.Rejection](err); !ok || r.Reason != policy.ReasonQueueFull || r.RetryAfter != want {
			t.Errorf("Admit = %v, %+v, want %s after %v", err, r, policy.ReasonQueueFull, want)
		}
	}
	line := []*queue.Ticket{s.must(rules, scope)}
	fill := func() {
		for len(line) < 5 {
			line = append(line, s.must(rules, scope))
		}
	}
	serve := func(after time.Duration) {
		s.now = s.now.Add(after)
		s.queue.Release(s.now, line[0], nil)
		line = line[1:]
	}
	fill()
	refused(time.Minute) // nobody was served
	for range 8 {
		serve(2 * time.Second)
		fill()
	}
	refused(8 * time.Second)
	for len(line) > 1 {
		serve(2 * time.Second)
	}
	serve(time.Hour) // nobody waits meanwhile
	line = append(line, s.must(rules, scope))
	fill()
	refused(8 * time.Second)

	s.now = s.now.Add(16 * time.Second) // all lose patience, and others come
	for _, ticket := range line[1:] {
		s.queue.Forget(s.now, ticket)
	}
	line = line[:1]
	s.now = s.now.Add(time.Hour)
	fill()
	refused(8*time.Second + 4*16*time.Second/12) // twelve were served
}

// Invariant 12: scopes that are not used any more are forgotten.
func TestIdleScopesAreForgotten(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 20000 {
		s.now = s.now.Add(time.Millisecond)
		rate := policy.Scope{ID: fmt.Sprint("caller:", i), Kind: policy.ScopeRequests, Limit: 1, Window: time.Second}
		s.queue.Release(s.now, s.must(queue.Rules{}, concurrency(fmt.Sprint("caller:", i), 1), rate), nil)
	}
	if n := s.queue.Scopes(); n > 2*(1000+1024) {
		t.Errorf("%d scopes are kept, and 1000 were used within their windows", n)
	}
}

// Invariant 3: a lease that was never used leaves no trace in a window.
func TestForgottenLeaseGivesBackItsPartOfTheWindow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	scope := policy.Scope{ID: "key:1", Kind: policy.ScopeRequests, Limit: 1, Window: time.Hour}
	s.queue.Forget(s.now, s.must(queue.Rules{}, scope))
	if !s.must(queue.Rules{}, scope).Running() {
		t.Error("the window is full")
	}
}

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"
)

// A crash of the policies' process breaks no request, passes no limit and
// leaks no lease, whatever runs and waits meanwhile.
func TestAKilledPolicyProcessBreaksNothing(t *testing.T) {
	t.Parallel()
	const (
		clients = 24
		kills   = 3
	)
	p := startProvider(t, twoKeys(2, 2, "latency 20ms\ntokens 8\ntokens_per_second 100"))
	u := startUsher(t, setup{usher: p.upstream(2, 2), env: keyEnv})
	c := newClient(u.url)
	l := startLoad(t, c, clients)
	p.running(t, longTime, 4)

	for range kills {
		time.Sleep(time.Second)
		old := u.plugins()
		if len(old) == 0 {
			t.Fatal("no policy process runs")
		}
		for _, process := range old {
			process.kill(t)
		}
		allGone(t, longTime, old...)
		eventually(t, longTime, func() error {
			if now := u.plugins(); len(now) != len(old) {
				return fmt.Errorf("%d policy processes run after the kill, want %d", len(now), len(old))
			}
			return nil
		})
	}
	time.Sleep(time.Second)
	l.end(t)
	p.limitsKept(t)
	p.running(t, soon, 0)

	// All of the capacity is there again: nothing leaked.
	for i := range 4 {
		c.begin(t, ask{tag: fmt.Sprintf("after-%d", i), tokens: 8})
	}
	eventually(t, longTime, func() error {
		order := p.started(t)
		for i := range 4 {
			if !slices.Contains(order, fmt.Sprintf("after-%d", i)) {
				return fmt.Errorf("request %d waits though nothing runs", i)
			}
		}
		return nil
	})
	p.limitsKept(t)
}

// Who waits when the policies' process is killed goes on waiting, and starts
// when its turn comes.
func TestWaitingRequestsOutliveThePolicyProcess(t *testing.T) {
	t.Parallel()
	p := startProvider(t, twoKeys(2, 2, "tokens 100000\ntokens_per_second 100"))
	u := startUsher(t, setup{usher: p.upstream(1, 1), env: keyEnv})
	c := newClient(u.url)
	first := c.begin(t, ask{tag: "first"})
	p.running(t, longTime, 1)
	second := c.begin(t, ask{tag: "second"})
	p.running(t, longTime, 2)
	var waiting []*pending
	for i := range 5 {
		waiting = append(waiting, c.begin(t, ask{tag: fmt.Sprintf("waits-%d", i), tokens: 3}))
		u.waiting(t, i+1)
	}
	old := u.plugins()
	for _, process := range old {
		process.kill(t)
	}
	allGone(t, longTime, old...)
	eventually(t, longTime, func() error {
		if len(u.plugins()) == 0 {
			return fmt.Errorf("no policy process runs")
		}
		return nil
	})
	time.Sleep(time.Second) // enough for a mistake: to let one of them through
	if s := p.stats(t); s.InFlight != 2 || s.Requests != 2 {
		t.Errorf("after the kill the provider runs %d requests, and got %d, want 2 and 2", s.InFlight, s.Requests)
	}
	first.leave()
	second.leave()
	for i, w := range waiting {
		if err := w.wait(t, longTime).ok(); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
}

func TestNoProcessOutlivesAKilledUsher_B104(t *testing.T) {
	t.Parallel()
	p := startProvider(t, twoKeys(2, 2, "latency 50ms"))
	u := startUsher(t, setup{usher: p.upstream(2, 2), env: keyEnv})
	c := newClient(u.url)
	ctx, cancel := context.WithTimeout(t.Context(), longTime)
	defer cancel()
	if err := c.chat(ctx, ask{tag: "works"}).ok(); err != nil {
		t.Fatal(err)
	}
	left := u.plugins()
	if len(left) == 0 {
		t.Fatal("no policy process runs")
	}
	u.signal(t, syscall.SIGKILL)
	<-u.ended
	allGone(t, 2*time.Second, left...)
}

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

const (
	// soon is how long something may take that should take a second at most,
	// on a machine with more to do.
	soon = 20 * time.Second

	// longTime is for what only must not take for ever.
	longTime = 60 * time.Second
)

func TestParallelStreamsAllSucceedWithinTheLimits(t *testing.T) {
	t.Parallel()
	const streams = 50
	p := startProvider(t, twoKeys(1, 4, "latency 20ms\ntokens 8\ntokens_per_second 100"))
	u := startUsher(t, setup{usher: p.upstream(1, 4), env: keyEnv})
	c := newClient(u.url)

	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), longTime)
			defer cancel()
			if err := c.chat(ctx, ask{tag: strconv.Itoa(i)}).ok(); err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
		})
	}
	all.Wait()
	p.limitsKept(t)
	s := p.stats(t)
	if s.Requests != streams || s.Keys["k1"].MaxInFlight != 1 || s.Keys["k2"].MaxInFlight != 4 {
		t.Errorf("%d streams over keys that take 1 and 4 at a time were served as %+v", streams, s.Keys)
	}
}

// With two places, a request on its way to the provider may be passed by some
// that take the other place meanwhile.
func TestWaitingRequestsStartInTheOrderOfTheirArrival(t *testing.T) {
	t.Parallel()
	const waiting = 25
	for name, test := range map[string]struct{ keys, slack int }{"one place": {1, 0}, "two places": {2, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProvider(t, twoKeys(1, 1, "tokens 100000\ntokens_per_second 100"))
			config := p.upstream(1, 1)
			if test.keys == 1 {
				config = fmt.Sprintf("provider openai %s {\nkey k1 {env.E2E_KEY_1} {\nlimit concurrency 1\n}\n}\nmodel gpt-4o openai", p.url)
			}
			u := startUsher(t, setup{usher: config, env: keyEnv})
			c := newClient(u.url)

			var blockers, all []*pending
			for i := range test.keys {
				blockers = append(blockers, c.begin(t, ask{tag: "blocker", tokens: 500})) // five seconds
				p.running(t, longTime, i+1)
			}
			for i := range waiting {
				all = append(all, c.begin(t, ask{tag: strconv.Itoa(i), tokens: 3}))
				u.waiting(t, i+1)
			}
			for i, w := range append(blockers, all...) {
				if err := w.wait(t, longTime).ok(); err != nil {
					t.Errorf("request %d: %v", i, err)
				}
			}
			order := p.started(t)[test.keys:]
			for i := range waiting {
				if at := slices.Index(order, strconv.Itoa(i)); at < i-test.slack || at > i+test.slack {
					t.Errorf("request %d of %d started as number %d: %v", i, waiting, at, order)
				}
			}
			if t.Failed() {
				t.Log(u.adminGet(t, "/usher/decisions"))
			}
			p.limitsKept(t)
		})
	}
}

func TestAWaitingClientThatLeavesFreesItsPlace(t *testing.T) {
	t.Parallel()
	p := startProvider(t, twoKeys(1, 1, "tokens 100000\ntokens_per_second 100"))
	u := startUsher(t, setup{usher: p.upstream(1, 1, "") + "\nadmit fifo {\nqueue_limit 1\n}", env: keyEnv})
	c := newClient(u.url)
	for i := range 2 {
		c.begin(t, ask{tag: "runs"})
		p.running(t, longTime, i+1)
	}
	waits := c.begin(t, ask{tag: "waits"})
	u.waiting(t, 1)

	// refused tells whether a further request is turned away, because the one
	// place in the queue is taken, or waits, in which case it leaves again.
	refused := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		a := c.chat(ctx, ask{tag: "probe"})
		if a.status != 0 && a.status != http.StatusTooManyRequests && a.status != http.StatusServiceUnavailable {
			t.Fatalf("status %d, want a refusal: %s", a.status, a.body)
		}
		if a.status != 0 && a.header.Get("Retry-After") == "" {
			t.Errorf("a full queue does not say when to come again: %v", a.header)
		}
		return a.status != 0
	}
	eventually(t, longTime, func() error {
		if !refused() {
			return fmt.Errorf("the queue is not full")
		}
		return nil
	})
	left := time.Now()
	waits.leave()
	eventually(t, longTime, func() error {
		if refused() {
			return fmt.Errorf("the queue is still full")
		}
		return nil
	})
	if took := time.Since(left); took > soon+300*time.Millisecond {
		t.Errorf("the place in the queue became free after %v", took)
	}
	if got := p.started(t); slices.Contains(got, "waits") {
		t.Errorf("the request of the client who left reached the provider: %v", got)
	}
}

// The provider notices a moment after Usher that a client has left, so it must
// have room for one request more.
func TestAStreamingClientThatLeavesFreesItsSlot(t *testing.T) {
	t.Parallel()
	p := startProvider(t, twoKeys(2, 2, "tokens 100000\ntokens_per_second 100"))
	u := startUsher(t, setup{usher: p.upstream(1, 1), env: keyEnv})
	c := newClient(u.url)
	first := c.begin(t, ask{tag: "first"})
	p.running(t, longTime, 1)
	c.begin(t, ask{tag: "second"})
	p.running(t, longTime, 2)
	c.begin(t, ask{tag: "third"})
	u.waiting(t, 1)

	left := time.Now()
	first.leave()
	if took := p.startOf(t, longTime, "third").Sub(left); took < 0 || took > soon {
		t.Errorf("the slot was taken by the next request after %v", took)
	}
}

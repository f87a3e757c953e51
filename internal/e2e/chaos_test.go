package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// number returns a number of the environment.
func number(name string, preset int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return preset
}

// Plugins are killed, stopped and continued at random, and one answers at
// random, while requests come at a steady rate. No answer is wrong, no limit is
// passed, no lease leaks, and each request ends in success or in a refusal that
// is documented. For a longer look:
//
//	CHAOS_SECONDS=60 CHAOS_RPS=500 go test ./internal/e2e -run Chaos -v
func TestChaosBreaksNoPromise(t *testing.T) {
	t.Parallel()
	length, rps := time.Duration(number("CHAOS_SECONDS", 15))*time.Second, number("CHAOS_RPS", 60)
	p := startProvider(t, twoKeys(4, 4, "latency 8ms\ntokens 100000\ntokens_per_second 2000"))
	u := startUsher(t, setup{
		global: "usher {\nplugin chaotic " + chaoticPlugin(t) + "\n}",
		usher:  p.upstream(4, 4) + "\nselect keys\nselect chaotic {\ntimeout 500ms\non_error open\n}\nadmit fifo {\nmax_wait 20s\n}\ntimeout 30s",
		env:    keyEnv,
	})
	c := newClient(u.url)
	results := newTally()
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { torment(u, stop, results) })
	all.Go(func() { results.send(c, rps, stop) })
	time.Sleep(length)
	close(stop)
	all.Wait()

	t.Logf("%s", results)
	if len(results.wrong) > 0 {
		t.Errorf("%d requests ended in another way than they may; the first: %s", len(results.wrong), results.wrong[0])
	}
	if results.counts["200"] == 0 {
		t.Error("no request was served")
	}
	// Requests wait for the next process: many refusals mean that it was not
	// started, or that they were not held.
	if n := results.counts["503 plugin_unavailable"]; n > results.sent/4 {
		t.Errorf("%d of %d requests were refused because a plugin was away", n, results.sent)
	}
	p.limitsKept(t)
	p.running(t, longTime, 0)
	noLeaseLeft(t, u)
	for i := range 8 { // all of the capacity is there again
		c.begin(t, ask{tag: fmt.Sprintf("after-%d", i), tokens: 100000})
	}
	p.running(t, longTime, 8)
}

func chaoticPlugin(t *testing.T) string {
	t.Helper()
	path, err := buildAuthored("chaotic")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// noLeaseLeft waits until no request runs or waits in the books of the host.
func noLeaseLeft(t *testing.T, u *usher) {
	t.Helper()
	eventually(t, longTime, func() error {
		if status := strings.ReplaceAll(u.adminGet(t, "/usher/status"), " ", ""); strings.Count(status, `"running":0`) != 2 || strings.Count(status, `"waiting":0`) < 2 {
			return fmt.Errorf("something runs or waits: %s", status)
		}
		return nil
	})
}

// torment does to the plugins of u what happens to processes.
func torment(u *usher, stop <-chan struct{}, r *tally) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(200+rand.IntN(800)) * time.Millisecond):
		}
		victims := u.plugins()
		if len(victims) == 0 {
			continue
		}
		victim := victims[rand.IntN(len(victims))]
		switch rand.IntN(4) {
		case 0:
			r.count("SIGKILL")
			_ = syscall.Kill(victim.pid, syscall.SIGKILL) // it may be gone already
		case 1:
			r.count("SIGABRT")
			_ = syscall.Kill(victim.pid, syscall.SIGABRT)
		case 2: // it hangs, and comes back before the host takes it for dead
			r.count("SIGSTOP, short")
			pause(victim.pid, time.Duration(rand.IntN(1500))*time.Millisecond, stop)
		case 3: // it hangs for good
			r.count("SIGSTOP, long")
			pause(victim.pid, 20*time.Second, stop)
		}
	}
}

// pause stops a process, and lets it go on after d if it is still there.
func pause(pid int, d time.Duration, stop <-chan struct{}) {
	if syscall.Kill(pid, syscall.SIGSTOP) != nil {
		return
	}
	if d < 2*time.Second {
		select {
		case <-stop:
		case <-time.After(d):
		}
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// A tally counts how requests ended.
type tally struct {
	mu     sync.Mutex
	sent   int
	counts map[string]int
	wrong  []string
	slow   time.Duration
}

func newTally() *tally { return &tally{counts: map[string]int{}} }

func (r *tally) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

// String tells all counts.
func (r *tally) String() string {
	var words []string
	for what, n := range r.counts {
		words = append(words, fmt.Sprintf("%s: %d", what, n))
	}
	slices.Sort(words)
	return fmt.Sprintf("%d requests, %.1f %% served, the slowest took %s: %s", r.sent, 100*float64(r.counts["200"])/float64(max(r.sent, 1)), r.slow.Round(time.Millisecond), strings.Join(words, ", "))
}

// send sends requests at a rate until stop, and returns when all have ended.
func (r *tally) send(c *client, rps int, stop <-chan struct{}) {
	ticker := time.NewTicker(time.Second / time.Duration(rps))
	defer ticker.Stop()
	var requests sync.WaitGroup
	defer requests.Wait()
	for i := 0; ; i++ {
		select {
		case <-stop:
			r.sent = i
			return
		case <-ticker.C:
		}
		requests.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), longTime)
			defer cancel()
			begin := time.Now()
			r.judge(c.chat(ctx, ask{tag: fmt.Sprintf("chaos-%d", i), tokens: 6, whole: i%3 == 0}), time.Since(begin))
		})
	}
}

// judge counts how a request ended, which must be a whole answer or one of the
// refusals of the README.
func (r *tally) judge(a answer, took time.Duration) {
	reason := a.header.Get("X-Usher-Reason")
	refusals := []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	refused := slices.Contains(refusals, a.status) && reason != ""
	what := strconv.Itoa(a.status)
	if refused {
		what += " " + reason
	}
	r.count(what)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow = max(r.slow, took)
	switch {
	case refused:
	case a.ok() != nil:
		r.wrong = append(r.wrong, fmt.Sprintf("status %d: %v", a.status, a.ok()))
	case !strings.Contains(strings.ReplaceAll(a.body, `"}`, ""), "key=k"):
		r.wrong = append(r.wrong, "an answer of somebody else: "+a.body)
	}
}

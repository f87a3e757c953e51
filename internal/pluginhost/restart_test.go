package pluginhost_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/policy"
)

// Invariants 1 and 2.
func TestWaitingRequestsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	var running, waiting []*policy.Request
	for range limit {
		running = append(running, w.run(t))
	}
	admitted := make(chan *policy.Request)
	for range 5 {
		waiting = append(waiting, w.wait(t.Context(), t, admitted))
	}

	w.crash(t)
	w.log.has(t, 1, zap.InfoLevel, "restored", map[string]any{"running": limit, "waiting": len(waiting)})
	select {
	case r := <-admitted:
		t.Fatalf("%s may run though the limit of %d is reached", r.ID, limit)
	case <-time.After(100 * time.Millisecond):
	}
	for i, want := range waiting {
		w.release(append(running, waiting...)[i])
		if got := <-admitted; got.ID != want.ID {
			t.Errorf("%s may run, want %s", got.ID, want.ID)
		}
	}
	for _, r := range waiting[len(waiting)-limit:] {
		w.release(r)
	}
	w.empty(t)
}

// Invariant 4.
func TestWhatIsPostedDuringAnOutageArrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	var running []*policy.Request
	for range limit {
		running = append(running, w.run(t))
	}
	ctx, leave := context.WithCancel(t.Context())
	first := w.wait(ctx, t, nil)
	admitted := make(chan *policy.Request)
	second := w.wait(t.Context(), t, admitted)

	w.kill(t)
	eventually(t, func() error {
		if w.PID() != 0 {
			return errors.New("the process serves")
		}
		return nil
	})
	w.observe(running[0])
	released := w.release(running[0])
	leave()
	<-released
	if got := <-admitted; got.ID != second.ID {
		t.Errorf("%s may run, want %s: %s has left", got.ID, second.ID, first.ID)
	}
	w.log.has(t, 1, zap.InfoLevel, "observed", map[string]any{"request": running[0].ID})
	w.log.has(t, 1, zap.InfoLevel, "released", map[string]any{"request": running[0].ID, "disposition": policy.OK})
	for _, r := range append(running[1:], second) {
		w.release(r)
	}
	w.empty(t)
}

// Invariants 1 to 4: a policy that is killed again and again under load passes
// no limit, fails no request and leaks nothing.
func TestKillsUnderLoad(t *testing.T) {
	t.Parallel()
	const (
		clients = 16
		kills   = 12
	)
	w := newWorld(t, `{}`)
	var running, done, left atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				reqCtx, cancel := ctx, context.CancelFunc(func() {})
				if rand.N(4) == 0 { // an impatient caller
					reqCtx, cancel = context.WithTimeout(ctx, rand.N(20*time.Millisecond))
				}
				r := w.request()
				err := w.admit(reqCtx, r)
				switch {
				case err == nil:
					if n := running.Add(1); n > limit {
						t.Errorf("%d requests run, want at most %d", n, limit)
					}
					time.Sleep(rand.N(3 * time.Millisecond))
					running.Add(-1)
					w.observe(r)
					w.release(r)
					done.Add(1)
				case reqCtx.Err() != nil:
					left.Add(1)
				default:
					t.Errorf("request %s: %v", r.ID, err)
				}
				cancel()
			}
		})
	}
	for range kills {
		time.Sleep(20*time.Millisecond + rand.N(80*time.Millisecond))
		w.crash(t)
	}
	stop()
	wg.Wait()
	t.Logf("%d requests ran, %d left", done.Load(), left.Load())
	if done.Load() == 0 {
		t.Error("no request ran")
	}
	w.empty(t)
}

// A plugin that dies soon after each start is started again ever later, though
// each start succeeds.
func TestPluginThatDiesAfterEachStart_B108(t *testing.T) {
	t.Parallel()
	log := newLogs(t)
	p, err := pluginhost.StartUnforgiving(t.Context(), testSpec(), log.logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePlugin(p) })
	w := populate(t, p, log, `{}`)
	const deaths = 5
	for range deaths {
		w.crash(t)
	}
	lines := log.has(t, deaths, zap.WarnLevel, "plugin restarted", nil)
	for i, line := range lines { // the pauses are 20 ms and then twice as long each time, or half of that
		least := 10 * time.Millisecond << i
		if outage, _ := line.ContextMap()["outage"].(time.Duration); outage < least {
			t.Errorf("outage %d took %s, want at least %s", i+1, outage, least)
		}
	}
	w.empty(t)
}

// A process that dies while a call is under way, at any place, costs nobody
// anything but time.
func TestProcessDiesDuringACall(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"build", "select", "admit", "observe", "release", "restore"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, fmt.Sprintf(`{"at": %q, "do": "exit", "once": %q}`, at, t.TempDir()+"/once"))
			r := w.run(t)
			w.observe(r)
			if at == "restore" {
				w.kill(t)
				w.restarted(t, 1) // of two tries
			}
			<-w.release(r)
			w.restarted(t, 1)
			w.empty(t)
		})
	}
}

// Invariant 3, however long it takes.
func TestNextProcessWaitsForWhatWasAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	answered, noted, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		done <- w.Call(t.Context(), func() {
			close(answered)
			<-noted
		})
	}()
	<-answered
	w.kill(t)
	eventually(t, func() error {
		if w.PID() != 0 {
			return errors.New("the process serves")
		}
		return nil
	})
	time.Sleep(200 * time.Millisecond) // enough for a restart
	if w.PID() != 0 || len(w.log.find("built", nil)) > 1 {
		t.Error("another process was set up meanwhile")
	}
	close(noted)
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.restarted(t, 1)
	w.empty(t)
}

// While process after process fails nobody is held up, and nothing that waits
// is lost.
func TestBreakerOfAPluginThatCannotBeRestarted_B108(t *testing.T) {
	t.Parallel()
	p, log, broken := flaky(t, "exit 1")
	w := populate(t, p, log, `{}`)
	if state := w.State(); state != pluginhost.Ready {
		t.Errorf("state %s, want ready", state)
	}
	var running []*policy.Request
	for range limit {
		running = append(running, w.run(t))
	}
	admitted := make(chan *policy.Request)
	waits := w.wait(t.Context(), t, admitted)
	create(t, broken)
	w.kill(t)
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := w.admit(ctx, w.request()); err == nil || !strings.Contains(err.Error(), "cannot be restarted") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if err := w.admit(within(t), w.request()); err == nil || w.State() != pluginhost.Restarting {
		t.Errorf("state %s and %v, want restarting and an error at once", w.State(), err)
	}
	mend(t, broken)
	w.release(running[0])
	if got := <-admitted; got.ID != waits.ID {
		t.Errorf("%s may run, want %s", got.ID, waits.ID)
	}
	for _, r := range append(running[1:], waits) {
		w.release(r)
	}
	w.release(w.run(t))
	w.empty(t)
	closePlugin(p)
	if state := p.State(); state != pluginhost.Stopped {
		t.Errorf("state %s, want stopped", state)
	}
}

package pluginhost_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

func TestHungProcessIsReplaced_B110(t *testing.T) {
	t.Parallel()
	w := newSternWorld(t, `{}`)
	var running []*policy.Request
	for range limit {
		running = append(running, w.run(t))
	}
	admitted := make(chan *policy.Request)
	waits := w.wait(t.Context(), t, admitted)
	suspend(t, w.PID())
	eventually(t, func() error {
		if state := w.State(); state == pluginhost.Ready {
			return errors.New("the plugin is ready")
		}
		return nil
	})
	w.release(running[0])
	if got := <-admitted; got.ID != waits.ID {
		t.Errorf("%s may run, want %s", got.ID, waits.ID)
	}
	died := w.log.has(t, 1, zap.ErrorLevel, "plugin died", nil)
	if how, _ := died[0].ContextMap()["how"].(string); how != "it did not answer 2 times in a row and was killed" {
		t.Errorf("logged %q", how)
	}
	for _, r := range append(running[1:], waits) {
		w.release(r)
	}
	w.empty(t)
}

// A question that a hung process does not answer in time is asked again of the
// next one.
func TestQuestionOutlivesHungProcess(t *testing.T) {
	t.Parallel()
	w := newSternWorld(t, `{}`)
	suspend(t, w.PID())
	r := w.request()
	// It is killed a little after that.
	if d, err := w.decideWithin(within(t), 3*time.Second, r); err != nil || d.Admission == nil || d.Admission.Candidate == "" {
		t.Errorf("got %+v and %v", d, err)
	}
	if n := w.Restarts(); n != 1 {
		t.Errorf("restarted %d times, want once", n)
	}
	w.release(r)
	w.empty(t)
}

// A policy that hangs costs its own calls their deadline, and nobody else
// anything.
func TestHungCallsDoNotStopOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	hangs := populate(t, w.Plugin, w.log, `{"name": "hangs", "at": "select", "do": "hang"}`)
	for range 3 {
		if _, err := hangs.decideWithin(t.Context(), 50*time.Millisecond, w.request()); !host.TimedOut(err) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := hangs.decide(ctx, w.request()); !host.TimedOut(err) || ctx.Err() == nil {
			t.Errorf("got %v, and %v of the context", err, ctx.Err())
		}
		cancel()
		w.release(w.run(t))
	}
	if w.Restarts() > 0 {
		t.Errorf("restarted %d times", w.Restarts())
	}
	w.empty(t)
}

// A request whose admission was given after its deadline leaves nothing.
func TestLateAdmissionIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	slow := populate(t, w.Plugin, w.log, `{"name": "slow", "at": "select", "do": "sleep"}`)
	var requests sync.WaitGroup
	for range 2 * limit {
		requests.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
			defer cancel()
			if r := slow.request(); slow.admit(ctx, r) == nil {
				slow.release(r)
			}
		})
	}
	requests.Wait()
	time.Sleep(200 * time.Millisecond) // until their answers come
	slow.holds(t, 0, 0)
	slow.empty(t)
}

// A stopped plugin does not hold a call beyond its deadline.
func TestCallsEndAtTheirDeadline_B110(t *testing.T) {
	t.Parallel()
	w := newSternWorld(t, `{}`)
	suspend(t, w.PID())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := w.admit(ctx, w.request())
	if w.Restarts() > 0 {
		t.Error("it took until the plugin was found to hang")
	}
	if !host.TimedOut(err) || !strings.HasPrefix(err.Error(), "ask plugin test: ") {
		t.Errorf("got %v", err)
	}
	w.restarted(t, 1)
	w.empty(t)
}

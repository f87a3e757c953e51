package pluginhost_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// What the plugin refuses takes nothing else with it.
func TestRefusedObservationLosesNoRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	r := w.run(t)
	unknown := newCatalog(t, "unknown")
	w.Observe([]string{w.in.Name()}, host.Observation{Catalog: unknown, Result: policy.AttemptResult{Candidate: unknown.Candidates[0]}})
	<-w.release(r)
	w.log.has(t, 1, zap.InfoLevel, "released", map[string]any{"request": r.ID})
	w.log.has(t, 1, zap.ErrorLevel, "plugin refuses to be told what happened", nil)
	w.empty(t)
}

// A release that takes long is told again, and ends one lease.
func TestSlowReleaseIsToldAgain(t *testing.T) {
	t.Parallel()
	w := newSternWorld(t, `{"at": "release", "do": "hang", "once": "`+t.TempDir()+`/once"}`)
	first, second := w.run(t), w.run(t)
	w.observe(first)
	w.release(first)
	released := w.release(second)
	w.log.has(t, 1, zap.WarnLevel, "plugin cannot be told what happened", map[string]any{"releases": 2})
	<-released
	if n := len(w.log.find("observed", nil)); n != 1 {
		t.Errorf("observed %d times", n)
	}
	w.holds(t, 0, 0)
}

// The journal holds the last observations of a long outage, and not all.
func TestObservationsOfALongOutage(t *testing.T) {
	t.Parallel()
	p, log, broken := flaky(t, "exit 1")
	w := populate(t, p, log, `{}`)
	r := w.run(t)
	create(t, broken)
	w.kill(t)
	log.has(t, 1, zap.ErrorLevel, "plugin died", nil)
	const kept, many = 10_000, 25_000
	for i := range many {
		w.observe(&policy.Request{ID: fmt.Sprintf("o%d", i)})
	}
	mend(t, broken)
	<-w.release(r)
	log.has(t, 1, zap.InfoLevel, "observed", map[string]any{"request": fmt.Sprintf("o%d", many-1)})
	if n := len(log.find("observed", nil)); n < kept || n > 2*kept { // a part may have been on its way
		t.Errorf("observed %d times of %d", n, many)
	}
}

// A request that no process was asked about leaves nothing in the journal.
func TestRequestsOfALongOutage(t *testing.T) {
	t.Parallel()
	p, log, broken := flaky(t, "exit 1")
	w := populate(t, p, log, `{}`)
	create(t, broken)
	w.kill(t)
	log.has(t, 1, zap.ErrorLevel, "plugin died", nil)
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if err := w.admit(ctx, w.request()); !errors.Is(err, context.DeadlineExceeded) && w.State() != pluginhost.Restarting {
			t.Errorf("got %v", err)
		}
		cancel()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	w.Flushed(ctx)
	if took := time.Since(began); took > patience/2 || ctx.Err() != nil {
		t.Error("the journal is not empty")
	}
	mend(t, broken)
	w.empty(t)
}

// A plugin that says itself that it is not available is believed, and lives.
func TestPluginThatIsUnavailable(t *testing.T) {
	t.Parallel()
	p, _ := startPlugin(t, "unavailable")
	pid := p.PID()
	_, err := p.Configure(within(t), "any", nil)
	if err == nil || !strings.Contains(err.Error(), "the store is down") {
		t.Errorf("got %v", err)
	}
	if p.PID() != pid || p.Restarts() > 0 {
		t.Error("it was killed for that")
	}
}

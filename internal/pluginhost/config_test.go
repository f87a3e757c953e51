package pluginhost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/sdk/host"
)

func TestEqualConfigurationsShareAnInstance(t *testing.T) {
	t.Parallel()
	p, log := startPlugin(t)
	var wg sync.WaitGroup
	equal := make([]*pluginhost.Instance, 8)
	for i := range equal {
		wg.Go(func() { equal[i] = configure(t, p, `{"name": "same"}`) })
	}
	wg.Wait()
	other := configure(t, p, `{"name": "other"}`)
	for _, in := range equal {
		if in.Name() != equal[0].Name() || in.Name() == other.Name() {
			t.Errorf("instance %s, want %s, and not %s", in.Name(), equal[0].Name(), other.Name())
		}
		if want := (host.Kinds{Selection: true, Admission: true, Observer: true, Restorer: true, Operable: true}); in.Kinds() != want {
			t.Errorf("got %+v, want %+v", in.Kinds(), want)
		}
	}
	for i, in := range equal {
		if n := len(log.find("closed", nil)); n > 0 {
			t.Errorf("%d instances ended before %d of %d users left", n, len(equal)-i, len(equal))
		}
		if err := in.Close(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	log.has(t, 1, zap.InfoLevel, "closed", map[string]any{"policy": "same"})
	again := configure(t, p, `{"name": "same"}`)
	if again.Name() == equal[0].Name() {
		t.Error("an instance that ended was used again")
	}
	log.has(t, 2, zap.InfoLevel, "built", map[string]any{"policy": "same"})
	if n := len(log.find("built", nil)); n != 3 {
		t.Errorf("%d instances were built, want 3", n)
	}
}

// The end of an instance does not hit the one that takes its place.
func TestReloadBackAndForth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"at": "close", "do": "sleep"}`)
	old := w.in
	closed := make(chan error)
	go func() { closed <- old.Close(within(t)) }()
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		w.in = configure(t, w.Plugin, `{"at": "close", "do": "sleep"}`)
		w.release(w.run(t))
		go func(in *pluginhost.Instance) { _ = in.Close(within(t)) }(w.in)
		time.Sleep(20 * time.Millisecond)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if w.Restarts() > 0 {
		t.Errorf("restarted %d times", w.Restarts())
	}
}

func TestConfigErrorsPassThrough(t *testing.T) {
	t.Parallel()
	p, log := startPlugin(t)
	for _, tc := range []struct{ config, want string }{
		{`{"name": ""}`, "policy line: name: must not be empty"},
		{`{"nam": "x"}`, "policy line: nam: no such option; there are: at, do, name, once, silent"},
		{`{"at": "build", "do": "error"}`, "policy line: the policy cannot build"},
	} {
		_, err := p.Configure(within(t), "line", json.RawMessage(tc.config))
		if _, ok := errors.AsType[*host.ConfigError](err); !ok || err.Error() != tc.want {
			t.Errorf("%s: got %v (%[2]T), want %s", tc.config, err, tc.want)
		}
	}
	if _, err := p.Configure(within(t), "none", nil); err == nil || !strings.Contains(err.Error(), `no policy "none"`) {
		t.Errorf("got %v", err)
	}
	// None of them is part of a restart.
	w := populate(t, p, log, `{}`)
	w.crash(t)
	w.empty(t)
}

func TestValidateHasNoSideEffect(t *testing.T) {
	t.Parallel()
	p, log := startPlugin(t)
	ds, err := p.Validate(within(t), "line", json.RawMessage(`{"name": "x"}`))
	if err != nil || len(ds) > 0 {
		t.Errorf("got %v, %v for a right configuration", ds, err)
	}
	ds, err = p.Validate(within(t), "line", json.RawMessage(`{"name": 1, "at": 2}`))
	if err != nil || len(ds) != 2 || ds[0].Option != "at" || ds[1].Option != "name" {
		t.Errorf("got %v, %v", ds, err)
	}
	_, err = p.Validate(within(t), "none", nil)
	if err == nil || err.Error() != `plugin test has no policy "none"; it has ["line"]` {
		t.Errorf("got %v", err)
	}
	if lines := log.find("built", nil); len(lines) > 0 {
		t.Errorf("built %d instances", len(lines))
	}
}

// Invariant 5.
func TestDeadlyQuestion(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"build", "validate", "select", "admit"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, `{}`)
			r := w.run(t)
			config := json.RawMessage(fmt.Sprintf(`{"at": %q, "do": "exit"}`, at))
			var err error
			switch at {
			case "build":
				_, err = w.Configure(within(t), "line", config)
			case "validate":
				_, err = w.Validate(within(t), "line", config)
			default:
				poisoned := populate(t, w.Plugin, w.log, string(config))
				err = poisoned.admit(within(t), poisoned.request())
			}
			if err == nil || !strings.Contains(err.Error(), "plugin test died 3 times when it was asked to") {
				t.Errorf("got %v", err)
			}
			w.restarted(t, 3)
			w.release(r)
			w.empty(t)
			if n := w.Restarts(); n != 3 {
				t.Errorf("restarted %d times, want 3", n)
			}
		})
	}
}

// An instance that is built after its host has lost patience is ended.
func TestSlowConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := w.Configure(ctx, "line", json.RawMessage(`{"name": "slow", "at": "build", "do": "sleep"}`))
	if !host.TimedOut(err) {
		t.Errorf("got %v", err)
	}
	w.release(w.run(t)) // nobody waits for it
	w.log.has(t, 1, zap.InfoLevel, "closed", map[string]any{"policy": "slow"})
	w.empty(t)
}

// Who leaves during an outage is not configured any more.
func TestInstanceIsClosedDuringAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	gone := configure(t, w.Plugin, `{"name": "gone"}`)
	w.kill(t)
	if err := gone.Close(within(t)); err != nil {
		t.Error(err)
	}
	w.restarted(t, 1)
	w.empty(t)
	built, closed := w.log.find("built", map[string]any{"policy": "gone"}), w.log.find("closed", map[string]any{"policy": "gone"})
	if len(built) != 1+len(closed) {
		t.Errorf("built %d times and closed %d times", len(built), len(closed))
	}
}

func TestCatalogsAreShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	second := newCatalog(t, "k1") // of equal content
	for range 2 {
		if err := w.AddCatalog(within(t), second); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := w.RemoveCatalog(within(t), second); err != nil {
			t.Fatal(err)
		}
		w.empty(t)
	}
	r := w.run(t)
	if err := w.RemoveCatalog(within(t), w.catalog); err != nil {
		t.Fatal(err)
	}
	if err := w.admit(within(t), w.request()); !host.Unknown(err) {
		t.Errorf("asked with a catalog that was removed: got %v", err)
	}
	// A lease outlives its catalog, and a restart.
	w.crash(t)
	w.log.has(t, 1, zap.InfoLevel, "restored", map[string]any{"running": 1})
	w.release(r)
	if err := w.AddCatalog(within(t), w.catalog); err != nil {
		t.Fatal(err)
	}
	w.empty(t)
}

// A catalog that cannot be removed in time is not used by anybody either.
func TestCatalogIsRemovedTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.RemoveCatalog(ctx, w.catalog); !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
	w.crash(t)
	if err := w.admit(within(t), w.request()); !host.Unknown(err) {
		t.Errorf("asked with a catalog that was removed: got %v", err)
	}
	if err := w.AddCatalog(within(t), w.catalog); err != nil {
		t.Fatal(err)
	}
	w.empty(t)
}

// Catalogs come and go while the process does.
func TestConfiguringUnderCrashes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				c := newCatalog(t, fmt.Sprintf("k%d", i%2))
				in, err := w.Configure(within(t), "line", json.RawMessage(fmt.Sprintf(`{"name": "n%d"}`, i%2)))
				if err != nil {
					t.Errorf("configure: %v", err)
					return
				}
				if err := w.AddCatalog(within(t), c); err != nil {
					t.Errorf("add catalog: %v", err)
				}
				other := &world{Plugin: w.Plugin, in: in, catalog: c, log: w.log}
				other.arrivals.Store(int64(1000*(i+1) + n))
				r := other.request()
				if err := other.admit(within(t), r); err != nil {
					t.Errorf("admit: %v", err)
				}
				<-other.release(r)
				if err := w.RemoveCatalog(within(t), c); err != nil {
					t.Errorf("remove catalog: %v", err)
				}
				if err := in.Close(within(t)); err != nil {
					t.Errorf("close: %v", err)
				}
			}
		})
	}
	for range 5 {
		time.Sleep(50 * time.Millisecond)
		w.crash(t)
	}
	close(stop)
	wg.Wait()
	w.empty(t)
}

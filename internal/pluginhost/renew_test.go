package pluginhost_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/policy"
)

// install puts an executable to a path in one step, as the go command does.
func install(t *testing.T, from, to string) {
	t.Helper()
	// Another process writes it: ours would hold it open in those that it forks.
	if out, err := exec.Command("cp", from, to+".new").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Rename(to+".new", to); err != nil {
		t.Fatal(err)
	}
}

// startInstalled starts the test plugin from a file that can be replaced.
func startInstalled(t *testing.T) (*world, pluginhost.Spec) {
	t.Helper()
	spec := testSpec()
	spec.Path = filepath.Join(t.TempDir(), "plugin")
	install(t, pluginPath, spec.Path)
	p, log := startSpec(t, pluginhost.StartImpatient, spec)
	return populate(t, p, log, `{}`), spec
}

func TestARebuiltExecutableTakesOver(t *testing.T) {
	t.Parallel()
	w, spec := startInstalled(t)
	first := w.PID()
	if err := w.Renew(within(t), spec); err != nil || w.PID() != first {
		t.Fatalf("renewed from %d to %d (%v), though the file is the same", first, w.PID(), err)
	}
	var running []*policy.Request
	for range limit {
		running = append(running, w.run(t))
	}
	admitted := make(chan *policy.Request)
	var waiting []*policy.Request
	for range 3 {
		waiting = append(waiting, w.wait(t.Context(), t, admitted))
	}

	install(t, pluginPath, spec.Path)
	if err := w.Renew(within(t), spec); err != nil {
		t.Fatal(err)
	}
	if w.PID() == first || alive(first) {
		t.Errorf("process %d serves, and %d lives: %v", w.PID(), first, alive(first))
	}
	if w.Restarts() != 0 {
		t.Errorf("a renewal counts as %d restarts", w.Restarts())
	}
	for i, want := range waiting {
		w.release(running[i])
		if got := <-admitted; got.ID != want.ID {
			t.Errorf("%s may run, want %s", got.ID, want.ID)
		}
	}
	for _, r := range waiting {
		w.release(r)
	}
	w.empty(t)
}

func TestAnExecutableThatCannotTakeOverChangesNothing(t *testing.T) {
	t.Parallel()
	w, spec := startInstalled(t)
	first, held := w.PID(), w.run(t)
	script := filepath.Join(t.TempDir(), "script")
	for name, text := range map[string]string{
		"it ended with exit status 3": "#!/bin/sh\nexit 3\n",
		"does not know":               "#!/bin/sh\nexec " + pluginPath + " unavailable\n",
	} {
		if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		install(t, script, spec.Path)
		err := w.Renew(within(t), spec)
		if err == nil || !strings.Contains(err.Error(), name) && !strings.Contains(err.Error(), "cannot take over") {
			t.Errorf("a plugin that cannot serve takes over: %v", err)
		}
		if w.PID() != first || !alive(first) {
			t.Fatalf("process %d serves instead of %d", w.PID(), first)
		}
	}
	w.release(held)
	w.empty(t)
}

// No limit is passed and no request is lost, however often a plugin is renewed.
func TestRenewalsUnderLoadLoseNothing(t *testing.T) {
	t.Parallel()
	w, spec := startInstalled(t)
	var running, served atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 12 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r := w.request()
				if err := w.admit(t.Context(), r); err != nil {
					t.Errorf("request %s: %v", r.ID, err)
					return
				}
				if n := running.Add(1); n > limit {
					t.Errorf("%d requests run; the limit is %d", n, limit)
				}
				running.Add(-1)
				served.Add(1)
				w.release(r)
			}
		})
	}
	for range 5 {
		install(t, pluginPath, spec.Path)
		if err := w.Renew(within(t), spec); err != nil {
			t.Errorf("renew: %v", err)
		}
	}
	close(stop)
	clients.Wait()
	if served.Load() == 0 {
		t.Error("no request was served")
	}
	w.empty(t)
}

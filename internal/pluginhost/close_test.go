package pluginhost_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/internal/pluginhost"
)

// closes checks that Close returns in time and leaves no process.
func closes(t *testing.T, p *pluginhost.Plugin, pids ...int) {
	t.Helper()
	began := time.Now()
	closePlugin(p)
	if took := time.Since(began); took > patience {
		t.Errorf("Close took %s", took)
	}
	for _, pid := range pids {
		dies(t, pid)
	}
	if _, err := p.Policies(t.Context()); err == nil {
		t.Error("the plugin serves after Close")
	}
	closePlugin(p) // once more changes nothing
}

func TestCloseLetsPoliciesClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"name": "mine"}`)
	r := w.run(t)
	w.release(r)
	closes(t, w.Plugin, w.PID())
	w.log.has(t, 1, zap.InfoLevel, "released", map[string]any{"request": r.ID})
	w.log.has(t, 1, zap.InfoLevel, "closed", map[string]any{"policy": "mine"})
	if lines := w.log.above(zap.InfoLevel); len(lines) > 0 {
		t.Errorf("logged %q", lines)
	}
}

// Invariant 7.
func TestCloseKillsAHungProcess_B110(t *testing.T) {
	t.Parallel()
	t.Run("policy", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, `{"at": "close", "do": "hang"}`)
		closes(t, w.Plugin, w.PID())
	})
	t.Run("process", func(t *testing.T) {
		t.Parallel()
		log := newLogs(t)
		p, err := pluginhost.Start(t.Context(), testSpec(), log.logger) // which does not notice it so soon
		if err != nil {
			t.Fatal(err)
		}
		pid := p.PID()
		suspend(t, pid)
		closes(t, p, pid)
	})
}

// Invariant 7: what a process started ends with it, whichever way it ends.
func TestGroupEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	spawned := func(t *testing.T, w *world) int {
		w.run(t)
		lines := w.log.has(t, 1, zap.InfoLevel, "spawned", nil)
		var pid int
		if _, err := fmt.Sscan(fmt.Sprint(lines[0].ContextMap()["pid"]), &pid); err != nil || !alive(pid) {
			t.Fatalf("spawned process %d does not run: %v", pid, err)
		}
		return pid
	}
	t.Run("close", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, `{"at": "select", "do": "spawn"}`)
		child := spawned(t, w)
		closes(t, w.Plugin, w.PID(), child)
	})
	t.Run("crash", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, `{"at": "select", "do": "spawn"}`)
		child := spawned(t, w)
		w.crash(t)
		dies(t, child)
	})
	t.Run("hang", func(t *testing.T) {
		t.Parallel()
		w := newSternWorld(t, `{"at": "select", "do": "spawn"}`)
		child := spawned(t, w)
		suspend(t, w.PID())
		w.restarted(t, 1)
		dies(t, child)
	})
}

// The number of a process that has ended may be that of another one by now.
func TestAnotherProcessOfTheSameNumberIsLeftAlone_B112(t *testing.T) {
	t.Parallel()
	other := exec.Command("/bin/sleep", "600")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a group, which is what is killed
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	spec := testSpec()
	spec.Path = "/bin/true"
	if err := pluginhost.KillEnded(spec, zap.NewNop(), other.Process); err != nil {
		t.Error(err)
	}
	// What was signalled before is delivered first.
	signal(t, other.Process.Pid, syscall.SIGTERM)
	if err := other.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("the other process ended by %v, want what this test has sent", err)
	}
}

// A process that left the group, and keeps the output open, does not keep
// anybody waiting.
func TestCloseDoesNotWaitForADaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"at": "select", "do": "daemon"}`)
	w.run(t)
	lines := w.log.has(t, 1, zap.InfoLevel, "spawned", nil)
	var pid int
	if _, err := fmt.Sscan(fmt.Sprint(lines[0].ContextMap()["pid"]), &pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { signal(t, pid, syscall.SIGKILL) })
	closes(t, w.Plugin, w.PID())
	if !alive(pid) {
		t.Error("the daemon ended, so it was none")
	}
}

// flaky is a plugin that does not start again once a file is there.
func flaky(t *testing.T, instead string) (p *pluginhost.Plugin, log *logs, broken string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "flaky")
	broken = filepath.Join(dir, "broken")
	script := fmt.Sprintf("#!/bin/sh\n[ -e %s ] || exec %s\n%s\n", broken, pluginPath, instead)
	executable(t, path, script)
	spec := testSpec()
	spec.Path = path
	p, log = startSpec(t, pluginhost.StartImpatient, spec)
	return p, log, broken
}

// mend undoes create.
func mend(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCloseEndsARestart(t *testing.T) {
	t.Parallel()
	for name, instead := range map[string]string{"that fails": "exit 1", "that is slow": "sleep 600"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, log, broken := flaky(t, instead)
			create(t, broken)
			signal(t, p.PID(), syscall.SIGKILL)
			log.has(t, 1, zap.ErrorLevel, "plugin died", nil)
			time.Sleep(50 * time.Millisecond) // somewhere within the restart
			waiting := make(chan error, 1)
			go func() {
				_, err := p.Policies(t.Context())
				waiting <- err
			}()
			closes(t, p)
			if err := <-waiting; err == nil || !strings.Contains(err.Error(), "stopped") {
				t.Errorf("a call that waited got %v", err)
			}
		})
	}
}

// A plugin that cannot be started again is tried again with growing pauses.
// Calls say so at their deadline, questions as soon as the breaker is open, and
// it recovers when its file is mended.
func TestPluginThatDoesNotComeBack_B108(t *testing.T) {
	t.Parallel()
	p, log, broken := flaky(t, "echo broken >&2; exit 1")
	w := populate(t, p, log, `{}`)
	r := w.run(t)
	create(t, broken)
	w.kill(t)
	w.log.has(t, 1, zap.ErrorLevel, "plugin died", nil)

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := p.Policies(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the plugin test is being restarted") {
		t.Errorf("got %v", err)
	}
	if err := w.admit(within(t), w.request()); err == nil || !strings.Contains(err.Error(), "cannot be restarted") {
		t.Errorf("a question that waited got %v", err)
	}
	tries := w.log.has(t, 5, zap.ErrorLevel, "restart plugin", nil)
	for i, ms := range []int{10, 20, 40, 50, 50} { // up to the longest of an impatient host
		fields := tries[i].ContextMap()
		if want := time.Duration(ms) * time.Millisecond; fields["next_try_in"] != want {
			t.Errorf("try %d: the next one comes in %s, want %s", i, fields["next_try_in"], want)
		}
		if text := fmt.Sprint(fields["error"]); !strings.Contains(text, "its last words were: broken") {
			t.Errorf("logged %q", text)
		}
	}
	released := w.release(r)
	mend(t, broken)
	<-released
	w.empty(t)
}

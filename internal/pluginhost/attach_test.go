package pluginhost_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/usherproxy/usher/internal/pluginhost"
)

// byHand starts the test plugin as one does who debugs it. It ends with the
// test.
func byHand(t *testing.T, socket string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(pluginPath)
	cmd.Env = []string{"USHER_ATTACH=" + socket}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil && !strings.Contains(err.Error(), "killed") {
			t.Errorf("interrupted: %v", err)
		}
		if _, err := os.Stat(socket); err == nil && cmd.ProcessState.Success() {
			t.Error("the socket is left")
		}
	})
	eventually(t, func() error {
		_, err := os.Stat(socket)
		return err
	})
	return cmd
}

func TestAPluginThatWasStartedByHandIsAttached(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	spec := testSpec()
	spec.Path, spec.Args, spec.Env, spec.Patient = os.Args[0], []string{socket}, []string{hostEnv + "=attach"}, true
	if _, err := startWith(t, spec); err == nil || !strings.Contains(err.Error(), "start it with USHER_ATTACH="+socket) {
		t.Errorf("attached to nothing: %v", err)
	}
	plugin := byHand(t, socket)
	p, log := startSpec(t, pluginhost.StartStern, spec)
	w := populate(t, p, log, `{}`)
	running := w.run(t)

	// It is stopped at a breakpoint for longer than a plugin may hang.
	relay := w.PID()
	suspend(t, plugin.Process.Pid)
	admitted := make(chan error, 1)
	waits := w.request()
	go func() { admitted <- w.admit(t.Context(), waits) }()
	select {
	case err := <-admitted:
		t.Fatalf("a plugin that is stopped answers: %v", err)
	case <-time.After(6 * time.Second):
	}
	signal(t, plugin.Process.Pid, syscall.SIGCONT)
	if err := <-admitted; err != nil || w.PID() != relay {
		t.Errorf("after the breakpoint: %v, process %d instead of %d", err, w.PID(), relay)
	}
	w.release(waits)

	// It is started again by hand, and told what runs.
	if err := plugin.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	restarts := w.Restarts()
	eventually(t, func() error { // its socket is left
		return os.Remove(socket)
	})
	byHand(t, socket)
	w.restarted(t, restarts+1)
	w.release(running)
	w.empty(t)
}

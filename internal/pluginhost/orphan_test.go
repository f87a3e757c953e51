package pluginhost_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/sdk/host"
)

// hostEnv makes the test executable a host of the plugin that it names.
const hostEnv = "PLUGINHOST_TEST_HOST"

// hostMain starts a plugin and prints its process ID, or stands in for one.
func hostMain() {
	if os.Getenv(hostEnv) == "attach" {
		if err := pluginhost.Attach(os.Stdout, os.Stdin, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	spec := testSpec()
	spec.Path = os.Getenv(hostEnv)
	p, err := pluginhost.Start(context.Background(), spec, zap.NewNop())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	select {}
}

// dies checks that a process ends.
func dies(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(patience); alive(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("process %d is left", pid)
		}
	}
}

func TestSocketDirMayBeTooLong(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), hostEnv+"="+pluginPath, "TMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	if want := "set TMPDIR to a shorter one than " + dir; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("got %s, want %q", out, want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// Invariant 6, as the kernel keeps it.
func TestNoProcessOutlivesAKilledHost_B104(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]bool{"well": false, "hung": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tmp, err := os.MkdirTemp("", "host") // shorter than that of t
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), hostEnv+"="+pluginPath, "TMPDIR="+tmp)
			cmd.Stderr = t.Output()
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			var pid int
			if _, err := fmt.Fscan(out, &pid); err != nil || !alive(pid) {
				t.Fatalf("plugin %d does not run: %v", pid, err)
			}
			if hang {
				suspend(t, pid)
			}
			signal(t, cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait() // it was killed
			dies(t, pid)
		})
	}
}

// A plugin does not end with the thread that happened to ask for it.
func TestProcessOutlivesTheThreadThatStartedIt(t *testing.T) {
	t.Parallel()
	plugins := make(chan *pluginhost.Plugin)
	go func() {
		runtime.LockOSThread() // so that the thread ends with the goroutine
		p, err := pluginhost.StartImpatient(t.Context(), testSpec(), newLogs(t).logger)
		if err != nil {
			t.Error(err)
		}
		plugins <- p
	}()
	p := <-plugins
	if p == nil {
		return
	}
	t.Cleanup(func() { closePlugin(p) })
	pid := p.PID()
	time.Sleep(200 * time.Millisecond)
	if !alive(pid) || p.Restarts() > 0 {
		t.Errorf("process %d ended", pid)
	}
}

// Invariant 6, where the kernel does not: the policies may even close.
func TestLifelineEndsAPlugin(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(pluginPath)
	cmd.Env = []string{
		host.Handshake.MagicCookieKey + "=" + host.Handshake.MagicCookieValue,
		host.LifelineEnv + "=1", "PLUGIN_PROTOCOL_VERSIONS=1", "TMPDIR=" + t.TempDir(),
	}
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, stderrChild, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = stderrChild
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || !strings.HasPrefix(line, "1|1|unix|") {
		t.Fatalf("handshake %q, %v", line, err)
	}
	// All that a host holds ends with it.
	for _, f := range []interface{ Close() error }{stderr, stderrChild, stdout, lifeline} {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	dies(t, cmd.Process.Pid)
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Errorf("got %v, want exit status 1, which comes after the policies have closed", err)
	}
}

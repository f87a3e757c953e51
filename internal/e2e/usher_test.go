package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/usherproxy/usher/internal/freeport"
)

// startTimeout is how long anything may take to start, on a machine with more
// to do than to run tests.
const startTimeout = 60 * time.Second

// setup is a Caddyfile and the environment to run it in.
type setup struct {
	global string   // lines of the global options
	site   string   // directives of the site besides usher
	usher  string   // the block of the directive usher
	tls    bool     // the site has a certificate of Caddy's own authority
	env    []string // NAME=value
}

// usher is a running Usher.
type usher struct {
	url, admin string
	dir        string // its home, and that of its temporary files
	port       int
	adminPort  int
	binary     string
	env        []string
	cmd        *exec.Cmd
	log        *output
	ended      chan struct{} // closed when the process has ended
}

// startUsher runs Usher until the test ends, and returns when it serves.
func startUsher(t *testing.T, s setup) *usher {
	t.Helper()
	u := newUsher(t, s)
	u.run(t)
	return u
}

// newUsher prepares an Usher that does not run yet.
func newUsher(t *testing.T, s setup) *usher {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e") // short: the paths of sockets are limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	temp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	u := &usher{
		dir: dir, port: freeport.ForTest(t), adminPort: freeport.ForTest(t), binary: usherBinary(t),
		log: new(output), ended: make(chan struct{}),
	}
	u.url = fmt.Sprintf("http://127.0.0.1:%d", u.port)
	if s.tls {
		u.url = strings.Replace(u.url, "http", "https", 1)
	}
	u.admin = fmt.Sprintf("http://127.0.0.1:%d", u.adminPort)
	u.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + temp,
		"XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir,
	}, s.env...)
	u.write(t, s)
	return u
}

// caddyfile is the path of the configuration.
func (u *usher) caddyfile() string { return filepath.Join(u.dir, "Caddyfile") }

// write writes the Caddyfile.
func (u *usher) write(t *testing.T, s setup) {
	t.Helper()
	text := fmt.Sprintf(`{
	admin 127.0.0.1:%d
	persist_config off
	skip_install_trust
	local_certs
	%s
}
%s {
	bind 127.0.0.1
	%s
	usher {
		%s
	}
}
`, u.adminPort, s.global, u.url, s.site, s.usher)
	if err := os.WriteFile(u.caddyfile(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run starts the process and waits until it serves.
func (u *usher) run(t *testing.T) {
	t.Helper()
	u.cmd = u.command("run", "--config", u.caddyfile())
	u.cmd.Stdout, u.cmd.Stderr = u.log, u.log
	u.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	u.cmd.WaitDelay = 5 * time.Second
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = u.cmd.Wait() // its state tells the rest
		close(u.ended)
	}()
	t.Cleanup(func() { u.end(t) })
	eventually(t, startTimeout, func() error {
		select {
		case <-u.ended:
			t.Fatalf("usher run: %v\n%s", u.cmd.ProcessState, u.log.tail(8000))
		default:
		}
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", u.port))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// command returns a command of the binary in the environment of u.
func (u *usher) command(args ...string) *exec.Cmd {
	cmd := exec.Command(u.binary, args...)
	cmd.Env, cmd.Dir = u.env, u.dir
	return cmd
}

// end ends the process and its group, and shows its log if the test failed.
func (u *usher) end(t *testing.T) {
	t.Helper()
	left := u.plugins()
	u.signal(t, syscall.SIGTERM)
	select {
	case <-u.ended:
	case <-time.After(longTime):
		t.Errorf("usher did not end on SIGTERM")
	}
	if err := syscall.Kill(-u.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Error(err)
	}
	<-u.ended
	for _, p := range left {
		if p.alive() {
			p.kill(t)
		}
	}
	if t.Failed() {
		t.Logf("the log of usher:\n%s", u.log.tail(20000))
	}
}

func (u *usher) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	select {
	case <-u.ended:
		return
	default:
	}
	if err := u.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
}

// plugins returns the processes that Usher has started.
func (u *usher) plugins() []process { return descendants(u.cmd.Process.Pid) }

// reload gives the running Usher another configuration.
func (u *usher) reload(t *testing.T, s setup) {
	t.Helper()
	u.write(t, s)
	u.reloadFile(t)
}

// reloadFile lets the running Usher read its Caddyfile again.
func (u *usher) reloadFile(t *testing.T, flags ...string) {
	t.Helper()
	cmd := u.command(append([]string{"reload", "--config", u.caddyfile(), "--address", strings.TrimPrefix(u.admin, "http://")}, flags...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("usher reload: %v\n%s", err, out)
	}
}

// adminGet returns an answer of the admin API.
func (u *usher) adminGet(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Get(u.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// waiting waits until n requests wait for their turn.
func (u *usher) waiting(t *testing.T, n int) {
	t.Helper()
	eventually(t, longTime, func() error {
		var status struct {
			Plugins []struct{ Waiting int }
		}
		if err := json.Unmarshal([]byte(u.adminGet(t, "/usher/status")), &status); err != nil {
			return err
		}
		got := 0
		for _, p := range status.Plugins {
			got += p.Waiting
		}
		if got != n {
			return fmt.Errorf("%d requests wait, want %d", got, n)
		}
		return nil
	})
}

// pids returns the numbers of processes in order.
func pids(all []process) []int {
	var n []int
	for _, p := range all {
		n = append(n, p.pid)
	}
	slices.Sort(n)
	return n
}

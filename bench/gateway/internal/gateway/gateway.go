// Package gateway runs gateways to measure, each a process of the real
// executable with a configuration of its own.
package gateway

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Gateway is a process that serves.
type Gateway struct {
	Addr string // host:port
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// Build builds the executable into a folder.
func Build(folder string) (path string, err error) {
	path = filepath.Join(folder, "usher")
	out, err := exec.Command("go", "build", "-o", path, "github.com/usherproxy/usher/cmd/usher").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build usher: %w\n%s", err, out)
	}
	return path, nil
}

// Start starts a gateway whose Caddyfile config returns for the port to listen
// on, and returns when it listens. Its files go into folder.
func Start(executable, folder string, config func(port int) string) (*Gateway, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil { // the gateway listens there next
		return nil, err
	}
	file := filepath.Join(folder, "Caddyfile")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, []byte(config(port)), 0o600); err != nil {
		return nil, err
	}
	g := &Gateway{Addr: fmt.Sprintf("127.0.0.1:%d", port)}
	g.cmd = exec.Command(executable, "run", "--config", file, "--adapter", "caddyfile")
	g.cmd.Env = append(os.Environ(), "BENCH_KEY=sk-bench", "HOME="+folder, "XDG_CONFIG_HOME="+folder, "XDG_DATA_HOME="+folder)
	g.cmd.Stdout, g.cmd.Stderr = &g.log, &g.log
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	for range 200 {
		conn, err := net.Dial("tcp", g.Addr)
		if err == nil {
			return g, conn.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	g.Stop()
	return nil, fmt.Errorf("the gateway does not listen:\n%s", &g.log)
}

// Stop ends the gateway.
func (g *Gateway) Stop() {
	_ = g.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	kill := time.AfterFunc(10*time.Second, func() { _ = g.cmd.Process.Kill() })
	defer kill.Stop()
	_ = g.cmd.Wait() // however it ends
}

// CPU is the time that the gateway and the processes of its policies have used
// so far.
func (g *Gateway) CPU() (time.Duration, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		// After the name, which is in brackets: state, parent, and so on.
		_, rest, ok := strings.Cut(string(text[bytes.LastIndexByte(text, ')'):]), " ")
		fields := strings.Fields(rest)
		own := filepath.Base(filepath.Dir(file)) == strconv.Itoa(g.cmd.Process.Pid)
		if !ok || len(fields) < 13 || !own && fields[1] != strconv.Itoa(g.cmd.Process.Pid) {
			continue
		}
		for _, f := range fields[11:13] { // user and system time, in ticks
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", file, err)
			}
			sum += time.Duration(n) * tick
		}
	}
	return sum, nil
}

// tick is the unit of CPU times on every port of Linux that Go has.
const tick = 10 * time.Millisecond

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process names a process for as long as the machine runs: numbers are used
// again, but not with the same time of start.
type process struct {
	pid   int
	start string
}

// alive tells whether the process runs. One that has ended and that nobody
// has asked about yet (a zombie) does not.
func (p process) alive() bool {
	_, state, start, err := readStat(p.pid)
	return err == nil && start == p.start && state != "Z" && state != "X"
}

func (p process) kill(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		t.Errorf("kill %d: %v", p.pid, err)
	}
}

// readStat reads what /proc tells of a process.
func readStat(pid int) (parent int, state, start string, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", "", err
	}
	// The second field, the name in brackets, may hold anything.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 20 {
		return 0, "", "", fmt.Errorf("unexpected %s", b)
	}
	parent, err = strconv.Atoi(fields[1])
	return parent, fields[0], fields[19], err
}

// descendants returns the processes below a process that are alive.
func descendants(pid int) []process {
	children := map[int][]process{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if parent, state, start, err := readStat(pid); err == nil && state != "Z" {
			children[parent] = append(children[parent], process{pid, start})
		}
	}
	var all []process
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			all = append(all, p)
			next = append(next, p.pid)
		}
	}
	return all
}

// allGone waits until none of the processes is alive.
func allGone(t *testing.T, within time.Duration, all ...process) {
	t.Helper()
	for _, p := range all {
		eventually(t, within, func() error {
			if p.alive() {
				cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)) // only to say more
				return fmt.Errorf("process %d is left: %q", p.pid, cmdline)
			}
			return nil
		})
	}
}

// eventually waits until check has nothing to say.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %v", within, err)
		}
	}
}

// output collects what processes write. It is safe for concurrent use.
type output struct {
	mu sync.Mutex
	b  []byte
}

// Write appends.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b = append(o.b, p...)
	return len(p), nil
}

// String returns all that was written.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.b)
}

// tail returns the last bytes that were written, from the start of a line.
func (o *output) tail(n int) string {
	s := o.String()
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	return s[strings.IndexByte(s, '\n')+1:]
}

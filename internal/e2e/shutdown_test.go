package e2e_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSIGTERMEndsEverythingAndBreaksNoStream(t *testing.T) {
	t.Parallel()
	p := startProvider(t, twoKeys(2, 2, "tokens 200\ntokens_per_second 100"))
	u := startUsher(t, setup{usher: p.upstream(2, 2), env: keyEnv})
	stream := newClient(u.url).begin(t, ask{tag: "stream"})
	p.running(t, longTime, 1)
	policies := u.plugins()

	u.signal(t, syscall.SIGTERM)
	if err := stream.wait(t, longTime).ok(); err != nil {
		t.Errorf("the stream that ran: %v", err)
	}
	select {
	case <-u.ended:
	case <-time.After(longTime):
		t.Fatal("usher has not ended")
	}
	if code := u.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	allGone(t, soon, policies...)
	if conn, err := net.Dial("tcp", strings.TrimPrefix(u.url, "http://")); err == nil {
		t.Error("somebody still listens")
		_ = conn.Close()
	}
	left, err := os.ReadDir(filepath.Join(u.dir, "tmp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range left {
		t.Errorf("a temporary file is left: %s", file.Name())
	}
}

package e2e_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A stream that is longer than the grace period ends with an error in its own
// format, and holds up nothing.
func TestEndOfTheGracePeriodIsToldInTheStream_B103(t *testing.T) {
	t.Parallel()
	p := startProvider(t, twoKeys(1, 1, "tokens 100000\ntokens_per_second 100"))
	u := startUsher(t, setup{global: "grace_period 1s", usher: p.upstream(1, 1), env: keyEnv})
	c := newClient(u.url)
	var streams []*pending
	for i := range 2 {
		streams = append(streams, c.begin(t, ask{tag: "stream"}))
		p.running(t, longTime, i+1)
	}
	waits := c.begin(t, ask{tag: "waits"})
	u.waiting(t, 1)
	policies := u.plugins()

	u.signal(t, syscall.SIGTERM)
	for _, s := range streams {
		if a := s.wait(t, longTime); a.err == nil || a.events == 0 || !strings.Contains(a.body, `"code":"stopping"`) {
			t.Errorf("a stream ended after %d events by %v: ...%s", a.events, a.err, a.body[max(0, len(a.body)-300):])
		}
	}
	if a := waits.wait(t, longTime); a.status != http.StatusServiceUnavailable || a.header.Get("X-Usher-Reason") != "stopping" {
		t.Errorf("who waits got status %d, %v: %s", a.status, a.err, a.body)
	}
	select {
	case <-u.ended:
	case <-time.After(longTime):
		t.Fatal("usher has not ended")
	}
	allGone(t, soon, policies...)
	p.running(t, longTime, 0)
}

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

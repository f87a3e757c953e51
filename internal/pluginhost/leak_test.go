package pluginhost_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// A process that is started again and again leaves nothing behind. The number
// of times is in the environment, for a longer look.
func TestRestartsLeaveNothingBehind(t *testing.T) {
	// Not parallel: it counts what belongs to the process.
	times := 100
	if n, err := strconv.Atoi(os.Getenv("PLUGINHOST_TEST_RESTARTS")); err == nil {
		times = n
	}
	w := newWorld(t, `{}`)
	var before footprint
	for i := range times {
		w.crash(t)
		if i == 10 { // all pools are filled
			before = measure(t)
		}
	}
	eventually(t, func() error {
		if now := measure(t); now.goroutines > before.goroutines || now.files > before.files || now.children > before.children || now.sockets > before.sockets {
			return fmt.Errorf("after 10 restarts %+v, after %d %+v", before, times, now)
		}
		return nil
	})
	t.Logf("after 10 restarts %+v, after %d %+v", before, times, measure(t))
	w.empty(t)
}

// A footprint is what a process uses.
type footprint struct{ goroutines, files, children, sockets int }

func measure(t testing.TB) footprint {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := filepath.Glob(filepath.Join(os.TempDir(), "plugin-dir*"))
	if err != nil {
		t.Fatal(err)
	}
	return footprint{runtime.NumGoroutine(), len(files), len(children(t)), len(sockets)}
}

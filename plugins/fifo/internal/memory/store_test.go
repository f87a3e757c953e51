package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/plugins/fifo/internal/memory"
	"github.com/usherproxy/usher/plugins/fifo/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// All invariants, and of 12 that no wait is left.
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Test(t, func(t *testing.T) fifo.Store {
		s := memory.New()
		t.Cleanup(func() {
			if n := s.Waits(); n != 0 {
				t.Errorf("%d waits are left", n)
			}
		})
		return s
	})
}

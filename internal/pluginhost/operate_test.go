package pluginhost_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// A command reaches the process that serves, also while that changes.
func TestOperatorsOutliveRestarts(t *testing.T) {
	t.Parallel()
	once := filepath.Join(t.TempDir(), "once")
	w := newWorld(t, `{"at": "operate", "do": "exit", "once": `+strconv.Quote(once)+`}`)
	cmd := policy.Command{Name: "echo", Input: json.RawMessage(`[1,2]`)}
	for range 2 {
		out, err := w.in.Operate(within(t), cmd)
		if err != nil || string(out) != `{"echo":[1,2]}` {
			t.Errorf("echo answers %s (%v)", out, err)
		}
	}
	if w.Restarts() != 1 {
		t.Errorf("restarted %d times, want once", w.Restarts())
	}
}

func TestCommandErrorsPassThrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"at": "operate", "do": "error"}`)
	_, err := w.in.Operate(within(t), policy.Command{Name: "status"})
	if refused, ok := errors.AsType[*host.CommandError](err); !ok || refused.Message != "the policy cannot operate" {
		t.Errorf("status: %v, want what the policy said", err)
	}
}

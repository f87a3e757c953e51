package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
	"github.com/usherproxy/usher/sdk/policytest"
)

// ledger is a selection policy that answers operators.
type ledger struct{ policy.Selector }

func (ledger) Operate(_ context.Context, cmd policy.Command) (json.RawMessage, error) {
	switch cmd.Name {
	case "echo":
		return cmd.Input, nil
	case "prose":
		return json.RawMessage("it works"), nil
	case "bomb":
		panic("boom")
	}
	return nil, fmt.Errorf("unknown command %q", cmd.Name)
}

func TestOperate(t *testing.T) {
	t.Parallel()
	l := connect(t, map[string]sdk.Policies{"ledger": {Selection: ledger{}}, "mute": {Selection: selectFunc(skipB)}})
	for _, c := range []struct{ instance, command, input, want, wantErr string }{
		{"ledger", "echo", `{"key": "k1"}`, `{"key": "k1"}`, ""},
		{"ledger", "echo", ``, ``, ""},
		{"ledger", "no\xffthing", ``, ``, `unknown command "no` + "\uFFFD" + `thing"`},
		{"ledger", "prose", ``, ``, "not JSON"},
		{"ledger", "bomb", ``, ``, "boom"},
		{"mute", "status", ``, ``, "takes no commands"},
	} {
		out, err := l.Operate(t.Context(), c.instance, policy.Command{Name: c.command, Input: json.RawMessage(c.input)})
		if string(out) != c.want {
			t.Errorf("%s of %s answers %q, want %q", c.command, c.instance, out, c.want)
		}
		if c.wantErr == "" {
			if err != nil {
				t.Errorf("%s of %s: %v", c.command, c.instance, err)
			}
			continue
		}
		if refused, ok := errors.AsType[*host.CommandError](err); !ok || !strings.Contains(refused.Message, c.wantErr) {
			t.Errorf("%s of %s: %v, want a CommandError with %q", c.command, c.instance, err, c.wantErr)
		}
	}
	if _, err := l.Operate(t.Context(), "nobody", policy.Command{Name: "status"}); !host.Unknown(err) {
		t.Errorf("a command for nobody: %v, want an unknown instance", err)
	}
}

// An instance is used in the same way here and in another process.
func TestOperableInstances(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(testing.TB, sdk.Definition, string) sdk.Policies{
		"in process": policytest.Build, "connected": policytest.Dial,
	} {
		p := build(t, define("ledger", sdk.Policies{Selection: ledger{}}), "")
		out, err := p.Operable.Operate(t.Context(), policy.Command{Name: "echo", Input: json.RawMessage(`[1]`)})
		if err != nil || string(out) != `[1]` {
			t.Errorf("%s: echo answers %s (%v)", name, out, err)
		}
		_, err = p.Operable.Operate(t.Context(), policy.Command{Name: "clear"})
		if err == nil || err.Error() != `unknown command "clear"` {
			t.Errorf("%s: clear: %v, want the policy's own words", name, err)
		}
		mute := build(t, define("mute", sdk.Policies{Selection: selectFunc(skipB)}), "")
		if mute.Operable != nil {
			t.Errorf("%s: a policy without commands is Operable", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := policytest.Dial(t, define("ledger", sdk.Policies{Selection: ledger{}}), "")
	if _, err := p.Operable.Operate(ctx, policy.Command{Name: "echo"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a command in an ended context: %v, want %v", err, context.Canceled)
	}
}

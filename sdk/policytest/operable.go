package policytest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/usherproxy/usher/policy"
)

// TestOperable checks that a [policy.Operable] answers its operators. Each
// check gets an instance of its own from build.
func TestOperable(t *testing.T, build func(t *testing.T) policy.Operable) {
	for name, check := range map[string]func(t *testing.T, o policy.Operable){
		"status is answered as JSON and without input": func(t *testing.T, o policy.Operable) {
			status(t, o)
			status(t, o)
		},
		"an unknown command is an error that names it": refusesUnknownCommands,
		"commands are taken under concurrency":         operatesConcurrently,
		"an ended context is answered at once":         operatesInEndedContext,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, build(t))
		})
	}
}

// status asks for the status.
func status(t *testing.T, o policy.Operable) {
	t.Helper()
	out, err := o.Operate(t.Context(), policy.Command{Name: "status"})
	if err != nil {
		t.Errorf("status: %v", err)
	} else if !json.Valid(out) {
		t.Errorf("status is not JSON: %.100q", out)
	}
}

const noCommand = "no_such_command_of_policytest"

func refusesUnknownCommands(t *testing.T, o policy.Operable) {
	for _, input := range []string{"", `{}`, `[1, "x", null]`} {
		out, err := o.Operate(t.Context(), policy.Command{Name: noCommand, Input: json.RawMessage(input)})
		if err == nil || !strings.Contains(err.Error(), noCommand) {
			t.Errorf("%s answers %.100q and %v, want an error that names it", noCommand, out, err)
		}
	}
	status(t, o)
}

func operatesConcurrently(t *testing.T, o policy.Operable) {
	var operators sync.WaitGroup
	for range 8 {
		operators.Go(func() {
			for range 20 {
				status(t, o)
			}
		})
	}
	waitFor(t, &operators, "status")
}

func operatesInEndedContext(t *testing.T, o policy.Operable) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var call sync.WaitGroup
	call.Go(func() { _, _ = o.Operate(ctx, policy.Command{Name: "status"}) }) // that it returns is what matters
	waitFor(t, &call, "status in an ended context")
	status(t, o)
}

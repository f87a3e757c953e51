package conformance

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/usherproxy/usher/policy"
)

// Operable returns the checks that a [policy.Operable] answers its operators.
// Each check gets an instance of its own from build.
func Operable(build func(t T) policy.Operable) []Check {
	checks := []struct {
		name  string
		check func(t T, o policy.Operable)
	}{
		{"status is answered as JSON and without input", func(t T, o policy.Operable) { status(t, o); status(t, o) }},
		{"an unknown command is an error that names it", refusesUnknownCommands},
		{"commands are taken under concurrency", operatesConcurrently},
		{"an ended context is answered at once", operatesInEndedContext},
	}
	all := make([]Check, len(checks))
	for i, c := range checks {
		all[i] = Check{c.name, func(t T) { c.check(t, build(t)) }}
	}
	return all
}

// status asks for the status.
func status(t T, o policy.Operable) {
	t.Helper()
	out, err := o.Operate(t.Context(), policy.Command{Name: "status"})
	if err != nil {
		t.Errorf("status: %v", err)
	} else if !json.Valid(out) {
		t.Errorf("status is not JSON: %.100q", out)
	}
}

const noCommand = "no_such_command_of_policytest"

func refusesUnknownCommands(t T, o policy.Operable) {
	for _, input := range []string{"", `{}`, `[1, "x", null]`} {
		out, err := o.Operate(t.Context(), policy.Command{Name: noCommand, Input: json.RawMessage(input)})
		if err == nil || !strings.Contains(err.Error(), noCommand) {
			t.Errorf("%s answers %.100q and %v, want an error that names it", noCommand, out, err)
		}
	}
	status(t, o)
}

func operatesConcurrently(t T, o policy.Operable) {
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

func operatesInEndedContext(t T, o policy.Operable) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var call sync.WaitGroup
	call.Go(func() { _, _ = o.Operate(ctx, policy.Command{Name: "status"}) }) // that it returns is what matters
	waitFor(t, &call, "status in an ended context")
	status(t, o)
}

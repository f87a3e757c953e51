package policytest

import (
	"testing"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/conformance"
)

// TestAdmitter checks what every [policy.Admitter] must keep, whatever it
// limits. Each check gets an instance of its own from build.
//
// All requests of a check look alike to the policy, and carry one scope with a
// limit of 4. The checks find out how many of them run at once. A policy whose
// limit is reached earlier is tested at that limit; one that never says no is
// tested only where that does not matter.
func TestAdmitter(t *testing.T, build func(t *testing.T) policy.Admitter) {
	t.Helper()
	run(t, conformance.Admitter(adapt(build)))
}

// TestScopes checks a [policy.Admitter] that enforces the limits of the scopes
// that requests carry, of all kinds. Each check gets an instance of its own
// from build. An admitter with a limit of its own must have room for 50.
func TestScopes(t *testing.T, build func(t *testing.T) policy.Admitter) {
	t.Helper()
	run(t, conformance.Scopes(adapt(build)))
}

// TestRestorer checks that a new instance goes on where another one stopped.
// Each instance that build returns must know nothing of the others. The checks
// use the same requests as [TestAdmitter], and skip a policy without a limit.
func TestRestorer(t *testing.T, build func(t *testing.T) policy.Restorer) {
	t.Helper()
	run(t, conformance.Restorer(adapt(build)))
}

// TestSelector checks what every [policy.Selector] must keep, whatever it
// prefers. Each check gets an instance of its own from build.
func TestSelector(t *testing.T, build func(t *testing.T) policy.Selector) {
	t.Helper()
	run(t, conformance.Selector(adapt(build)))
}

// TestObserver checks that a [policy.Observer] takes whatever the host tells
// it, from many goroutines, and does not block. Each check gets an instance of
// its own from build.
func TestObserver(t *testing.T, build func(t *testing.T) policy.Observer) {
	t.Helper()
	run(t, conformance.Observer(adapt(build)))
}

// TestOperable checks that a [policy.Operable] answers its operators. Each
// check gets an instance of its own from build.
func TestOperable(t *testing.T, build func(t *testing.T) policy.Operable) {
	t.Helper()
	run(t, conformance.Operable(adapt(build)))
}

// adapt gives build the test that the checks are run with.
func adapt[P any](build func(t *testing.T) P) func(conformance.T) P {
	return func(t conformance.T) P { return build(t.(*testing.T)) }
}

// run runs checks as parallel subtests.
func run(t *testing.T, checks []conformance.Check) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t)
		})
	}
}

func runSuites(t *testing.T, suites []conformance.Suite) {
	t.Helper()
	for _, s := range suites {
		t.Run(s.Name, func(t *testing.T) { run(t, s.Checks) })
	}
}

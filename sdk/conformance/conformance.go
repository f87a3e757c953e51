// Package conformance holds the checks that a policy keeps its contract, for
// whatever runs them: package policytest runs them in "go test", and the
// command "usher plugin test" against an executable in any language.
//
// A suite, such as [Admitter], is a list of checks. What they need to report is
// a [T], which [*testing.T] is, and which [Run] makes without package testing.
package conformance

import (
	"context"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// A Check is one thing that a policy must keep.
type Check struct {
	// Name says what must hold. It is unique in its suite.
	Name string

	// Run checks it. It may be called once, at the same time as other checks.
	Run func(t T)
}

// T is what a check reports to. Its methods do what those of [*testing.T] do.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)

	// Fatalf and Skipf end the calling goroutine.
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)

	// Context returns a context that ends before the cleanups begin.
	Context() context.Context
	Cleanup(f func())
}

// A Suite is a named list of checks.
type Suite struct {
	Name   string
	Checks []Check
}

// Policies returns the suites of all that an instance offers. offered tells
// what that is, and build returns an instance that knows nothing of others.
// [Scopes] is not among the suites, because not every admitter enforces scopes.
func Policies(offered sdk.Policies, build func(t T) sdk.Policies) []Suite {
	var suites []Suite
	if offered.Admission != nil {
		suites = append(suites, Suite{"admitter", Admitter(func(t T) policy.Admitter { return build(t).Admission })})
	}
	if _, ok := offered.Admission.(policy.Restorer); ok {
		suites = append(suites, Suite{"restorer", Restorer(func(t T) policy.Restorer { return build(t).Admission.(policy.Restorer) })})
	}
	if offered.Selection != nil {
		suites = append(suites, Suite{"selector", Selector(func(t T) policy.Selector { return build(t).Selection })})
	}
	if offered.Observer != nil {
		suites = append(suites, Suite{"observer", Observer(func(t T) policy.Observer { return build(t).Observer })})
	}
	if offered.Operable != nil {
		suites = append(suites, Suite{"operable", Operable(func(t T) policy.Operable { return build(t).Operable })})
	}
	return suites
}

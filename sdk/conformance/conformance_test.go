package conformance_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/conformance"
	"github.com/usherproxy/usher/sdk/policytest"
)

func TestMain(m *testing.M) {
	if os.Getenv(faultEnv) != "" {
		conformance.SetPatience(500 * time.Millisecond)
		os.Exit(m.Run())
	}
	conformance.SetPatience(2 * time.Minute)
	goleak.VerifyTestMain(m)
}

func TestGateKeepsTheContract(t *testing.T) {
	t.Parallel()
	policytest.TestDefinition(t, defineGate, ``, `{"name": "east"}`)
}

func TestGateEnforcesScopes(t *testing.T) {
	t.Parallel()
	t.Run("in process", func(t *testing.T) {
		policytest.TestScopes(t, func(t *testing.T) policy.Admitter {
			return policytest.Build(t, defineGate(), ``).Admission
		})
	})
	t.Run("connected", func(t *testing.T) {
		policytest.TestScopes(t, func(t *testing.T) policy.Admitter {
			return policytest.Dial(t, defineGate(), ``).Admission
		})
	})
}

// What runs checks without package testing tells the same.
func TestRunTellsHowAChecksEnds(t *testing.T) {
	t.Parallel()
	var order []string
	for name, test := range map[string]struct {
		check func(conformance.T)
		want  conformance.Result
	}{
		"passes": {func(t conformance.T) { t.Logf("hello %d", 1) }, conformance.Result{Report: []string{"hello 1"}}},
		"fails": {
			func(t conformance.T) { t.Errorf("a"); t.Fatalf("b"); t.Errorf("c") },
			conformance.Result{Failed: true, Report: []string{"a", "b"}},
		},
		"is skipped": {func(t conformance.T) { t.Skipf("no limit") }, conformance.Result{Skipped: true, Report: []string{"no limit"}}},
		"fails when cleaned up": {
			func(t conformance.T) {
				t.Cleanup(func() { order = append(order, "last") })
				t.Cleanup(func() { order = append(order, "first"); t.Fatalf("left: %v", t.Context().Err()) })
			},
			conformance.Result{Failed: true, Report: []string{"left: context canceled"}},
		},
	} {
		got := conformance.Run(t.Context(), conformance.Check{Name: name, Run: test.check})
		got.Duration = 0
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("a check that %s: %+v, want %+v", name, got, test.want)
		}
	}
	if want := []string{"first", "last"}; !slices.Equal(order, want) {
		t.Errorf("cleaned up %v, want %v", order, want)
	}
	got := conformance.Run(t.Context(), conformance.Check{Name: "panics", Run: func(conformance.T) { panic("oh") }})
	if !got.Failed || !strings.HasPrefix(got.Report[0], "panic: oh") {
		t.Errorf("a check that panics: %+v", got)
	}
}

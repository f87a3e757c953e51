package policytest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// TestDefinition checks a policy and its configuration. For each of configs,
// which are JSON objects, it runs the suites of all that an instance offers:
// in the process of the test, and behind a gRPC connection with and without a
// session. Without
// configs it tests the defaults. [TestScopes] is not among the suites, because
// not every admitter enforces scopes.
//
// define is called for each instance that must know nothing of the others. A
// policy that keeps no state outside of its instances may return the same
// Definition each time.
func TestDefinition(t *testing.T, define func() sdk.Definition, configs ...string) {
	if len(configs) == 0 {
		configs = []string{`{}`}
	}
	for i, config := range configs {
		t.Run(fmt.Sprintf("config %d", i+1), func(t *testing.T) {
			t.Logf("policy %s with config %s", define().Name(), config)
			testConfig(t, define, config)
			for name, build := range map[string]builder{"in process": Build, "session": Dial, "unary": DialUnary} {
				t.Run(name, func(t *testing.T) {
					testPolicies(t, func(t *testing.T) sdk.Policies { return build(t, define(), config) })
				})
			}
		})
	}
}

// A builder is [Build], [Dial] or [DialUnary].
type builder func(t testing.TB, definition sdk.Definition, config string) sdk.Policies

// testPolicies runs the suites of what build offers.
func testPolicies(t *testing.T, build func(t *testing.T) sdk.Policies) {
	offered := build(t)
	if offered.Admission != nil {
		t.Run("admitter", func(t *testing.T) {
			TestAdmitter(t, func(t *testing.T) policy.Admitter { return build(t).Admission })
		})
	}
	if _, ok := offered.Admission.(policy.Restorer); ok {
		t.Run("restorer", func(t *testing.T) {
			TestRestorer(t, func(t *testing.T) policy.Restorer { return build(t).Admission.(policy.Restorer) })
		})
	}
	if offered.Selection != nil {
		t.Run("selector", func(t *testing.T) {
			TestSelector(t, func(t *testing.T) policy.Selector { return build(t).Selection })
		})
	}
	if offered.Observer != nil {
		t.Run("observer", func(t *testing.T) {
			TestObserver(t, func(t *testing.T) policy.Observer { return build(t).Observer })
		})
	}
	if offered.Operable != nil {
		t.Run("operable", func(t *testing.T) {
			TestOperable(t, func(t *testing.T) policy.Operable { return build(t).Operable })
		})
	}
}

// testConfig checks how the policy takes its configuration.
func testConfig(t *testing.T, define func() sdk.Definition, config string) {
	t.Run("the configuration is right", func(t *testing.T) {
		if ds := define().Validate(json.RawMessage(config)); len(ds) > 0 {
			t.Errorf("validate: %v", ds)
		}
	})
	t.Run("an unknown option is an error that names it", func(t *testing.T) {
		namesUnknownOption(t, define(), config)
	})
	t.Run("validation has no effect", func(t *testing.T) {
		validatesWithoutEffect(t, define(), config)
	})
	t.Run("two instances live side by side", func(t *testing.T) {
		outlivesItsTwin(t, define(), config)
	})
}

func namesUnknownOption(t *testing.T, d sdk.Definition, config string) {
	const name = "no_such_option_of_policytest"
	options := map[string]json.RawMessage{}
	if config != "" {
		if err := json.Unmarshal([]byte(config), &options); err != nil {
			t.Fatalf("config is not a JSON object: %v", err)
		}
	}
	options[name] = json.RawMessage(`true`)
	raw, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	ds := d.Validate(raw)
	if !slices.ContainsFunc(ds, func(d sdk.Diagnostic) bool { return d.Option == name }) {
		t.Errorf("validate %s: %v; want an error about option %s", raw, ds, name)
	}
	if _, err := d.Build(t.Context(), raw); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("build %s: %v; want an error about option %s", raw, err, name)
	}
}

func validatesWithoutEffect(t *testing.T, d sdk.Definition, config string) {
	raw := json.RawMessage(config)
	for range 3 {
		if ds := d.Validate(raw); len(ds) > 0 {
			t.Errorf("validate again: %v", ds)
		}
		if !bytes.Equal(raw, []byte(config)) {
			t.Fatalf("validate changed the configuration to %s", raw)
		}
	}
	Build(t, d, config)
	if ds := d.Validate(raw); len(ds) > 0 {
		t.Errorf("validate next to an instance: %v", ds)
	}
}

// outlivesItsTwin checks what happens in a reload: a new instance is there
// before the old one is closed, and goes on afterwards.
func outlivesItsTwin(t *testing.T, d sdk.Definition, config string) {
	client := Connect(t, d)
	old := configure(t, client, "old", d, config)
	young := configure(t, client, "young", d, config)
	serves(t, old)
	serves(t, young)
	if err := old.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatalf("close the old instance: %v", err)
	}
	serves(t, young)
}

// serves checks that p answers.
func serves(t *testing.T, p sdk.Policies) {
	t.Helper()
	if p.Admission != nil {
		admitsAndReleases(t, newRoom(t, p.Admission))
	}
	if p.Selection != nil {
		judge(t, p.Selection, newOffers(1).next(3))
	}
	if p.Observer != nil {
		p.Observer.Observe(t.Context(), results(newOffers(1))[0])
	}
	if p.Operable != nil {
		status(t, p.Operable)
	}
}

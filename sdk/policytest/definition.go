package policytest

import (
	"fmt"
	"testing"

	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/conformance"
	"github.com/usherproxy/usher/sdk/host"
)

// TestDefinition checks a policy and its configuration. For each of configs,
// which are JSON objects, it runs the suites of all that an instance offers:
// in the process of the test, and behind a connection with a session of either
// kind and without one. Without configs it tests the defaults. [TestScopes] is not among the
// suites, because not every admitter enforces scopes.
//
// define is called for each instance that must know nothing of the others. A
// policy that keeps no state outside of its instances may return the same
// Definition each time.
func TestDefinition(t *testing.T, define func() sdk.Definition, configs ...string) {
	t.Helper()
	if len(configs) == 0 {
		configs = []string{`{}`}
	}
	for i, config := range configs {
		t.Run(fmt.Sprintf("config %d", i+1), func(t *testing.T) {
			t.Logf("policy %s with config %s", define().Name(), config)
			offered := Build(t, define(), config)
			t.Run("in process", func(t *testing.T) {
				runSuites(t, conformance.Policies(offered, func(t conformance.T) sdk.Policies {
					return Build(t.(testing.TB), define(), config)
				}))
			})
			for name, connect := range map[string]func(testing.TB, ...sdk.Definition) *host.Client{
				"frames": Connect, "stream": ConnectStream, "unary": ConnectUnary,
			} {
				target := conformance.Target{
					Connect: func(t conformance.T) *host.Client { return connect(t.(testing.TB), define()) },
					Policy:  define().Name(), Config: config,
				}
				t.Run(name, func(t *testing.T) { runSuites(t, target.Suites(offered)) })
			}
		})
	}
}

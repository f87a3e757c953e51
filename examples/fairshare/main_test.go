package main

import (
	"testing"

	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/policytest"
)

func define() sdk.Definition { return sdk.Define("fairshare", defaults, build) }

func TestKeepsTheContract(t *testing.T) {
	t.Parallel()
	policytest.TestDefinition(t, define, `{}`, `{"max": 1, "weights": {"research": 3}}`)
}

func TestWrongOptionsAreNamed(t *testing.T) {
	t.Parallel()
	for config, option := range map[string]string{`{"max": 0}`: "max", `{"weights": {"a": 0}}`: "weights.a"} {
		if ds := define().Validate([]byte(config)); len(ds) != 1 || ds[0].Option != option {
			t.Errorf("%s: %v, want an error about %s", config, ds, option)
		}
	}
}

package main

import (
	"testing"

	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/policytest"
)

func TestKeepsTheContract(t *testing.T) {
	t.Parallel()
	policytest.TestDefinition(t, func() sdk.Definition {
		return sdk.Define("slots", config{Max: 8}, build)
	}, `{}`, `{"max": 1}`)
}

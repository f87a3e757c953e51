package sdk_test

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/policytest"
)

type describedBlock struct {
	Failures int          `json:"failures"`
	Rest     sdk.Duration `json:"rest"`
}

type described struct {
	Order   string             `json:"order"`
	Breaker describedBlock     `json:"breaker"`
	Weights map[string]float64 `json:"weights"`
	Strict  bool               `json:"strict"`
	hidden  int
	Ignored int `json:"-"`
}

func TestOptionsAreDescribedToTheHost(t *testing.T) {
	t.Parallel()
	defaults := described{Order: "fixed", Breaker: describedBlock{3, sdk.Duration(time.Minute)}, hidden: 1}
	d := sdk.Define("described", defaults, func(context.Context, described) (sdk.Policies, error) { return sdk.Policies{}, nil })
	want := []sdk.Option{
		{Name: "breaker.failures", Type: "a whole number", Default: json.RawMessage(`3`)},
		{Name: "breaker.rest", Type: `a duration such as "1m30s"`, Default: json.RawMessage(`"1m0s"`)},
		{Name: "order", Type: "a string", Default: json.RawMessage(`"fixed"`)},
		{Name: "strict", Type: "true or false", Default: json.RawMessage(`false`)},
		{Name: "weights", Type: "a block", Default: json.RawMessage(`null`)},
	}
	if got := d.Options(); !reflect.DeepEqual(got, want) {
		t.Errorf("options %+v, want %+v", got, want)
	}
	info, err := policytest.Connect(t, d).Info(t.Context(), "test")
	if err != nil || !reflect.DeepEqual(info.Options["described"], want) {
		t.Errorf("over the wire: %+v (%v), want %+v", info.Options, err, want)
	}
}

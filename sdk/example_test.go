package sdk_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// Residency is a policy that keeps the requests of a group in a region.
type residencyConfig struct {
	Group  string `json:"group"`
	Region string `json:"region"`
}

func (c residencyConfig) Validate() error {
	if c.Group == "" {
		return sdk.OptionError("group", "must name a group of callers")
	}
	return nil
}

func buildResidency(_ context.Context, c residencyConfig) (sdk.Policies, error) {
	filter := func(_ context.Context, req *policy.Request, candidate policy.Candidate) (policy.Why, error) {
		if req.Caller.Group == c.Group && candidate.Labels["region"] != c.Region {
			return policy.Why{Reason: policy.ReasonPolicy, Detail: "residency"}, nil
		}
		return policy.Why{}, nil
	}
	return sdk.Policies{Selection: policy.FilterFunc(filter)}, nil
}

// Define takes the same arguments as Serve, and makes a policy that can be
// tested without a process.
func ExampleDefine() {
	residency := sdk.Define("residency", residencyConfig{Region: "eu"}, buildResidency)

	for _, config := range []string{`{"group": "research"}`, `{}`, `{"group": "research", "regoin": "us"}`} {
		fmt.Println(config, residency.Validate(json.RawMessage(config)))
	}
	// Output:
	// {"group": "research"} []
	// {} [group: must name a group of callers]
	// {"group": "research", "regoin": "us"} [regoin: no such option; there are: group, region]
}

// The last call of a plugin's main.
func ExampleServe() {
	main := func() {
		sdk.Serve("residency", residencyConfig{Region: "eu"}, buildResidency)
	}
	_ = main
}

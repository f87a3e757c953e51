// Command residency is a selection policy of somebody else: it keeps requests
// in one region.
package main

import (
	"context"
	"errors"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// Config is the block of the policy in the Caddyfile.
type Config struct {
	// Region is the label "region" that a candidate must have.
	Region string `json:"region"`
}

// Validate checks that there is a region.
func (c Config) Validate() error {
	if c.Region == "" {
		return errors.New("region: name the region to stay in")
	}
	return nil
}

func main() {
	sdk.Serve("residency", Config{}, func(_ context.Context, c Config) (sdk.Policies, error) {
		return sdk.Policies{Selection: policy.FilterFunc(
			func(_ context.Context, _ *policy.Request, candidate policy.Candidate) (policy.Why, error) {
				if candidate.Labels["region"] != c.Region {
					return policy.Why{Reason: policy.ReasonPolicy, Detail: "region"}, nil
				}
				return policy.Why{}, nil
			},
		)}, nil
	})
}

// Command residency is a selection policy that keeps the requests of one group
// in one region, by the labels of the candidates.
package main

import (
	"context"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

type config struct {
	Group  string `json:"group"`
	Region string `json:"region"`
}

func build(_ context.Context, c config) (sdk.Policies, error) {
	return sdk.Policies{Selection: policy.FilterFunc(
		func(_ context.Context, req *policy.Request, cand policy.Candidate) (policy.Why, error) {
			if req.Caller.Group == c.Group && cand.Labels["region"] != c.Region {
				return policy.Why{Reason: policy.ReasonPolicy, Detail: "residency"}, nil
			}
			return policy.Why{}, nil
		},
	)}, nil
}

func main() { sdk.Serve("residency", config{Group: "eu", Region: "eu"}, build) }

// Command cheapest is a selection policy that ranks candidates by what the
// request would cost on them. A price stands in the configuration of Usher, or
// in the policy's own table, which goes first.
package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

type config struct {
	// Prices are by upstream model, for a million tokens.
	Prices map[string]price `json:"prices"`

	// OutputTokens is how long an answer is taken to be whose length the
	// request does not limit.
	OutputTokens int64 `json:"output_tokens"`
}

type price struct {
	Input  float64 `json:"input"`
	Output float64 `json:"output"`
}

var defaults = config{OutputTokens: 500}

func (c config) Validate() error {
	if c.OutputTokens < 0 {
		return sdk.OptionError("output_tokens", "must be at least 0, not %d", c.OutputTokens)
	}
	for model, p := range c.Prices {
		if p.Input < 0 || p.Output < 0 {
			return sdk.OptionError("prices."+model, "must not be below 0")
		}
	}
	return nil
}

// Select ranks all candidates, the cheapest first, and those without a price
// last. Candidates of equal cost keep their order.
func (c config) Select(_ context.Context, req *policy.SelectRequest) (policy.Selection, error) {
	usage := policy.Usage{InputTokens: req.Request.InputTokens, OutputTokens: cmp.Or(req.Request.MaxOutputTokens, c.OutputTokens)}
	ranked := slices.Clone(req.Candidates)
	slices.SortStableFunc(ranked, func(a, b policy.Candidate) int {
		pa, knownA := c.price(a)
		pb, knownB := c.price(b)
		if knownA != knownB {
			return map[bool]int{true: -1, false: 1}[knownA]
		}
		return cmp.Compare(pa.Of(usage), pb.Of(usage))
	})
	var s policy.Selection
	for _, cand := range ranked {
		s.Add(cand)
	}
	return s, nil
}

// price returns what a candidate costs, and whether that is known.
func (c config) price(cand policy.Candidate) (policy.Price, bool) {
	if p, ok := c.Prices[cand.Model]; ok {
		return policy.Price{Input: p.Input, Output: p.Output}, true
	}
	return cand.Price, cand.Price != policy.Price{}
}

func build(_ context.Context, c config) (sdk.Policies, error) {
	return sdk.Policies{Selection: c}, nil
}

func main() { sdk.Serve("cheapest", defaults, build) }

// Command chaotic is a selection policy that fails in every way there is.
package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

type chaotic struct{}

// Select is right most of the time.
func (chaotic) Select(ctx context.Context, req *policy.SelectRequest) (policy.Selection, error) {
	var s policy.Selection
	for _, c := range req.Candidates {
		s.Add(c)
	}
	switch rand.IntN(200) {
	case 0:
		return s, errors.New("no luck")
	case 1:
		panic("no luck")
	case 2:
		s.Add(policy.Candidate{ID: "of nobody"})
	case 3:
		s.Add(req.Candidates[0])
		s.Skip(req.Candidates[0], policy.Why{Reason: policy.ReasonPolicy})
	case 4:
		s.Skip(req.Candidates[0], policy.Why{Reason: "no reason"})
	case 5:
		select { // longer than its timeout
		case <-ctx.Done():
		case <-time.After(time.Minute):
		}
	case 6:
		if rand.IntN(10) == 0 {
			os.Exit(1)
		}
	}
	return s, nil
}

func main() {
	sdk.Serve("chaotic", struct{}{}, func(context.Context, struct{}) (sdk.Policies, error) {
		return sdk.Policies{Selection: chaotic{}}, nil
	})
}

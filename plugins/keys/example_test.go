package keys_test

import (
	"context"
	"fmt"
	"time"

	"github.com/usherproxy/usher/plugins/keys"
	"github.com/usherproxy/usher/policy"
)

// A key that is rate limited is left alone until the instant that the provider
// named.
func Example() {
	ctx := context.Background()
	plugin := keys.New()
	now := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	plugin.Clock = func() time.Time { return now }
	policies, err := plugin.Definition().Build(ctx, []byte(`{"order": "priority"}`))
	if err != nil {
		fmt.Println(err)
		return
	}

	k1 := policy.Candidate{ID: "openai/k1/gpt-4o", Provider: "openai", Key: "k1", Model: "gpt-4o"}
	k2 := policy.Candidate{ID: "openai/k2/gpt-4o", Provider: "openai", Key: "k2", Model: "gpt-4o"}
	policies.Observer.Observe(ctx, policy.AttemptResult{
		RequestID: "r1", Candidate: k1, Format: "openai", EndedAt: now,
		Disposition: policy.RateLimited, Until: now.Add(20 * time.Second),
	})
	selection, err := policies.Selection.Select(ctx, &policy.SelectRequest{
		Request:    &policy.Request{ID: "r2", Format: "openai"},
		Candidates: []policy.Candidate{k1, k2},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range selection.Verdicts {
		fmt.Println(v.Candidate, v.Status, v.Reason, v.Until.Format(time.TimeOnly))
	}
	// Output:
	// openai/k2/gpt-4o eligible  00:00:00
	// openai/k1/gpt-4o skipped cooldown 15:00:20
}

//go:build !race

// With the race detector, pools drop what they are given at random.

package host_test

import (
	"fmt"
	"testing"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
	"github.com/usherproxy/usher/sdk/policytest"
)

// A request costs both sides no allocation per candidate, however it is carried:
// a hundred times as many candidates take less than one more for each four. What
// is left are lists that grow, and pools that a collection has emptied.
func TestCandidatesAreNotAllocated(t *testing.T) {
	const few, many = 2, 200
	for name, connect := range map[string]func(testing.TB, ...sdk.Definition) *host.Client{
		"frames": policytest.Connect, "stream": policytest.ConnectStream,
	} {
		t.Run(name, func(t *testing.T) {
			base, all := decideAllocs(t, connect, few), decideAllocs(t, connect, many)
			if all-base >= (many-few)/4 {
				t.Errorf("%v allocations for %d candidates and %v for %d", base, few, all, many)
			}
		})
	}
}

// decideAllocs returns how often a request with n candidates, of which some hold
// something, allocates memory, at best.
func decideAllocs(t *testing.T, connect func(testing.TB, ...sdk.Definition) *host.Client, n int) float64 {
	t.Helper()
	client, catalog, candidates := connectAll(t, connect, n)
	ids := 0
	once := func() {
		ids++
		req := &policy.Request{ID: fmt.Sprint(ids), Format: "openai", Operation: "chat", Model: "model"}
		if err := decideAndRelease(t.Context(), client, catalog, candidates, req); err != nil {
			t.Error(err)
		}
	}
	best := testing.AllocsPerRun(50, once)
	for range 4 {
		best = min(best, testing.AllocsPerRun(50, once))
	}
	return best
}

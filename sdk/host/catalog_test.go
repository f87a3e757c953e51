package host_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func candidates() []policy.Candidate {
	return []policy.Candidate{
		{ID: "a", Labels: map[string]string{"region": "eu", "tier": "plus"}, Scopes: []policy.Scope{{ID: "key:a", Kind: policy.ScopeConcurrency, Limit: 2}}},
		{ID: "b"},
	}
}

func newCatalog(t *testing.T, cs []policy.Candidate) *host.Catalog {
	t.Helper()
	c, err := host.NewCatalog(cs)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCatalogsOfEqualContentHaveEqualNames(t *testing.T) {
	t.Parallel()
	name := newCatalog(t, candidates()).Name
	for what, change := range map[string]func([]policy.Candidate){
		"nothing": func([]policy.Candidate) {},
		"the load": func(cs []policy.Candidate) {
			cs[0].Load = policy.Load{InFlight: 3, Latency: time.Second, Failures: 0.5}
		},
		"a used scope": func(cs []policy.Candidate) {
			cs[0].Scopes[0].Used, cs[0].Scopes[0].Resets = 2, time.Unix(1, 0)
		},
	} {
		changed := candidates()
		change(changed)
		catalog := newCatalog(t, changed)
		if catalog.Name != name {
			t.Errorf("after a change of %s: name %s, want %s", what, catalog.Name, name)
		}
		if diff := cmp.Diff(candidates(), catalog.Candidates); diff != "" {
			t.Errorf("after a change of %s: candidates (-want +got):\n%s", what, diff)
		}
		if what == "a used scope" && changed[0].Scopes[0].Used != 2 {
			t.Error("the catalog changed the candidates that it was made of")
		}
	}
	for what, change := range map[string]func([]policy.Candidate){
		"an ID":        func(cs []policy.Candidate) { cs[1].ID = "c" },
		"the order":    func(cs []policy.Candidate) { cs[0], cs[1] = cs[1], cs[0] },
		"a label":      func(cs []policy.Candidate) { cs[0].Labels["region"] = "us" },
		"a limit":      func(cs []policy.Candidate) { cs[0].Scopes[0].Limit = 3 },
		"the priority": func(cs []policy.Candidate) { cs[1].Priority = 1 },
		"a secret":     func(cs []policy.Candidate) { cs[1].KeyVersion = "v2" },
		"an account":   func(cs []policy.Candidate) { cs[1].Account = "openai/team" },
		"a price":      func(cs []policy.Candidate) { cs[1].Price.Input = 2.5 },
		"disabled":     func(cs []policy.Candidate) { cs[1].Disabled = true },
	} {
		changed := candidates()
		change(changed)
		if newCatalog(t, changed).Name == name {
			t.Errorf("a change of %s did not change the name", what)
		}
	}
}

func TestCatalogsHaveDistinctCandidates(t *testing.T) {
	t.Parallel()
	if _, err := host.NewCatalog([]policy.Candidate{{ID: "a"}, {ID: "b"}, {ID: "a"}}); err == nil {
		t.Error("a catalog with two candidates of one ID was made")
	}
}

func ExampleNewCatalog() {
	idle, err := host.NewCatalog([]policy.Candidate{{ID: "openai/k1/gpt-4o"}})
	if err != nil {
		fmt.Println(err)
	}
	busy, err := host.NewCatalog([]policy.Candidate{{ID: "openai/k1/gpt-4o", Load: policy.Load{InFlight: 4}}})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println("the same catalog:", idle.Name == busy.Name)
	// Output: the same catalog: true
}

package host_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
	"github.com/usherproxy/usher/sdk/policytest"
)

// BenchmarkDecide measures what a decision about candidates of which some hold
// something costs both sides, over a connection without a socket, with its
// release and its observation.
func BenchmarkDecide(b *testing.B) {
	for name, connect := range map[string]func(testing.TB, ...sdk.Definition) *host.Client{
		"session": policytest.Connect, "unary": policytest.ConnectUnary, "inline": func(_ testing.TB, ds ...sdk.Definition) *host.Client {
			return host.Inline(context.Background(), "inline", ds...)
		},
	} {
		for _, n := range []int{2, 20, 200} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) { benchmarkDecide(b, connect, n) })
		}
	}
}

func benchmarkDecide(b *testing.B, connect func(testing.TB, ...sdk.Definition) *host.Client, n int) {
	all := sdk.Define("all", struct{}{}, func(context.Context, struct{}) (sdk.Policies, error) {
		admit := admitFunc(func(context.Context, *policy.AdmitRequest) (policy.Lease, error) {
			return policy.LeaseFunc(func(context.Context, policy.Outcome) error { return nil }), nil
		})
		keep := policy.FilterFunc(func(context.Context, *policy.Request, policy.Candidate) (policy.Why, error) { return policy.Why{}, nil })
		return sdk.Policies{Selection: keep, Admission: admit}, nil
	})
	client := connect(b, all)
	if _, err := client.Configure(b.Context(), "all", "all", nil); err != nil {
		b.Fatal(err)
	}
	var candidates []policy.Candidate
	for i := range n {
		candidates = append(candidates, policy.Candidate{
			ID: fmt.Sprintf("provider/key%d/model", i), Provider: "provider", Key: fmt.Sprintf("key%d", i), Model: "model",
			Scopes: []policy.Scope{{ID: fmt.Sprintf("key:provider/key%d", i), Kind: policy.ScopeConcurrency, Limit: 4}},
		})
	}
	catalog, err := host.NewCatalog(candidates)
	if err != nil {
		b.Fatal(err)
	}
	if err := client.SyncCatalog(b.Context(), catalog); err != nil {
		b.Fatal(err)
	}
	for i := range candidates {
		candidates[i].Load.InFlight = i % 3
		candidates[i].Scopes[0].Used = int64(i % 3)
	}
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			req := &policy.Request{ID: fmt.Sprintf("%p-%d", pb, i), Format: "openai", Operation: "chat", Model: "model"}
			d, err := client.Decide(b.Context(), &host.DecideRequest{
				Request: req, Catalog: catalog, Candidates: candidates, Select: []string{"all"}, Admit: "all", Attempt: 1,
			})
			if err == nil && d.Admission.Waiting { // the machine is busy
				d.Admission, err = client.Wait(b.Context(), &host.AdmitRequest{
					Instance: "all", Request: req, Attempt: 1, Catalog: catalog, Candidates: candidates,
				}, func(*host.Admission) {})
			}
			if err != nil || d.Admission.Candidate == "" {
				b.Errorf("decide: %+v, %v", d, err)
				return
			}
			if err := client.Report(b.Context(), &host.Report{Releases: []host.Release{{Instance: "all", Ticket: host.Ticket{ID: req.ID, Attempt: 1}}}}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

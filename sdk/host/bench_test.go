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
		"frames": policytest.Connect, "stream": policytest.ConnectStream, "unary": policytest.ConnectUnary, "inline": func(_ testing.TB, ds ...sdk.Definition) *host.Client {
			return host.Inline(context.Background(), "inline", ds...)
		},
	} {
		for _, n := range []int{2, 20, 200} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) { benchmarkDecide(b, connect, n) })
		}
	}
}

func benchmarkDecide(b *testing.B, connect func(testing.TB, ...sdk.Definition) *host.Client, n int) {
	client, catalog, candidates := connectAll(b, connect, n)
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			req := &policy.Request{ID: fmt.Sprintf("%p-%d", pb, i), Format: "openai", Operation: "chat", Model: "model"}
			if err := decideAndRelease(b.Context(), client, catalog, candidates, req); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// connectAll serves a policy that selects and admits whatever it is asked about,
// and returns n candidates of which some hold something.
func connectAll(tb testing.TB, connect func(testing.TB, ...sdk.Definition) *host.Client, n int) (*host.Client, *host.Catalog, []policy.Candidate) {
	tb.Helper()
	client := connect(tb, sdk.Define("all", struct{}{}, func(context.Context, struct{}) (sdk.Policies, error) {
		admit := admitFunc(func(context.Context, *policy.AdmitRequest) (policy.Lease, error) {
			return policy.LeaseFunc(func(context.Context, policy.Outcome) error { return nil }), nil
		})
		keep := policy.FilterFunc(func(context.Context, *policy.Request, policy.Candidate) (policy.Why, error) { return policy.Why{}, nil })
		return sdk.Policies{Selection: keep, Admission: admit}, nil
	}))
	if _, err := client.Configure(tb.Context(), "all", "all", nil); err != nil {
		tb.Fatal(err)
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
		tb.Fatal(err)
	}
	if err := client.SyncCatalog(tb.Context(), catalog); err != nil {
		tb.Fatal(err)
	}
	for i := range candidates {
		candidates[i].Load.InFlight = i % 3
		candidates[i].Scopes[0].Used = int64(i % 3)
	}
	return client, catalog, candidates
}

// decideAndRelease takes a request from its question to the end of its lease.
func decideAndRelease(ctx context.Context, client *host.Client, catalog *host.Catalog, candidates []policy.Candidate, req *policy.Request) error {
	d, err := client.Decide(ctx, &host.DecideRequest{
		Request: req, Catalog: catalog, Candidates: candidates, Select: []string{"all"}, Admit: "all", Attempt: 1,
	})
	if err == nil && d.Admission.Waiting { // the machine is busy
		d.Admission, err = client.Wait(ctx, &host.AdmitRequest{
			Instance: "all", Request: req, Attempt: 1, Catalog: catalog, Candidates: candidates,
		}, func(*host.Admission) {})
	}
	if err != nil {
		return err
	}
	if d.Admission.Candidate == "" {
		return fmt.Errorf("admission %+v", d.Admission)
	}
	return client.Report(ctx, &host.Report{Releases: []host.Release{{Instance: "all", Ticket: host.Ticket{ID: req.ID, Attempt: 1}}}})
}

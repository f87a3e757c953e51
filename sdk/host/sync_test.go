package host_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
	"github.com/usherproxy/usher/sdk/internal/policypb"
)

// A recorder notes what catalogs are sent to a plugin, and may refuse some.
type recorder struct {
	policypb.PolicyServiceServer

	mu     sync.Mutex // guards what follows
	sent   []*policypb.SyncCatalogRequest
	refuse func(n int) error               // the next one, which is the n-th; or nil
	hide   func(*policypb.GetInfoResponse) // what another plugin would not say; or nil
}

func (r *recorder) GetInfo(ctx context.Context, req *policypb.GetInfoRequest) (*policypb.GetInfoResponse, error) {
	resp, err := r.PolicyServiceServer.GetInfo(ctx, req)
	if r.hide != nil {
		r.hide(resp)
	}
	return resp, err
}

func (r *recorder) SyncCatalog(ctx context.Context, req *policypb.SyncCatalogRequest) (*policypb.SyncCatalogResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, req)
	if r.refuse != nil {
		if err := r.refuse(len(r.sent)); err != nil {
			return nil, err
		}
	}
	return r.PolicyServiceServer.SyncCatalog(ctx, req)
}

// take returns what was sent since the last time.
func (r *recorder) take() []*policypb.SyncCatalogRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}

// connectLimited returns a client of a plugin that takes messages of 4 MiB, as
// gRPC does unless told otherwise. Its policy prefers the last candidate.
func connectLimited(t *testing.T, hide func(*policypb.GetInfoResponse)) (*host.Client, *recorder) {
	t.Helper()
	d := sdk.Define("last", struct{}{}, func(context.Context, struct{}) (sdk.Policies, error) {
		return sdk.Policies{Selection: last{}}, nil
	})
	r := &recorder{PolicyServiceServer: sdk.NewServerPlugin(t.Context(), "limited", d).Service(nil), hide: hide}
	server := grpc.NewServer()
	policypb.RegisterPolicyServiceServer(server, r)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	conn, err := grpc.NewClient(listener.Addr().String(), append(host.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		serving.Wait()
	})
	half, err := (&host.Plugin{}).GRPCClient(t.Context(), nil, conn)
	if err != nil {
		t.Fatal(err)
	}
	c := half.(*host.Client)
	if _, err := c.Info(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Configure(t.Context(), "last", "last", nil); err != nil {
		t.Fatal(err)
	}
	return c, r
}

type last struct{}

func (last) Select(_ context.Context, req *policy.SelectRequest) (policy.Selection, error) {
	var s policy.Selection
	s.Add(req.Candidates[len(req.Candidates)-1])
	return s, nil
}

// manyCandidates returns candidates that take more than 4 MiB to send.
func manyCandidates() []policy.Candidate {
	cs := make([]policy.Candidate, 10_000)
	for i := range cs {
		id := fmt.Sprintf("%s-%d", strings.Repeat("a-long-name", 20), i)
		cs[i] = policy.Candidate{ID: "p/" + id + "/m", Provider: "p", Key: id, Model: "m"}
	}
	return cs
}

// knows checks whether the plugin decides about the candidates of a catalog.
func knows(t *testing.T, c *host.Client, catalog *host.Catalog, want bool) {
	t.Helper()
	d, err := c.Decide(t.Context(), &host.DecideRequest{
		Request: &policy.Request{ID: "r"}, Catalog: catalog, Candidates: catalog.Candidates, Select: []string{"last"}, Attempt: 1,
	})
	if !want {
		if !host.Unknown(err) {
			t.Errorf("decided about a catalog that is not there: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	best := catalog.Candidates[len(catalog.Candidates)-1].ID
	if got := d.Selections[0].Verdicts; len(got) != 1 || got[0].Candidate != best {
		t.Errorf("verdicts %+v, want one on %q", got, best)
	}
}

func TestLargeCatalogsAreSentInParts(t *testing.T) {
	t.Parallel()
	c, r := connectLimited(t, nil)
	cs := manyCandidates()
	first := newCatalog(t, cs)
	if err := c.SyncCatalog(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	sent := r.take()
	knows(t, c, first, true)

	cs = slices.Insert(slices.Delete(slices.Clone(cs), 7000, 7001), 3000, policy.Candidate{ID: "new"})
	cs[5000].Weight = 3
	second := newCatalog(t, cs)
	if err := c.SyncCatalog(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	changed, n := r.take(), 0
	for _, req := range changed {
		n += len(req.GetCandidates())
	}
	if n == 0 || n > len(cs)/5 {
		t.Errorf("%d candidates were sent again because three had changed", n)
	}
	knows(t, c, second, true)
	if err := c.SyncCatalog(t.Context(), nil, first.Name); err != nil {
		t.Fatal(err)
	}
	knows(t, c, first, false)
	knows(t, c, second, true)
	if err := c.SyncCatalog(t.Context(), nil, second.Name); err != nil {
		t.Fatal(err)
	}
	left := make(map[string]bool)
	for _, req := range slices.Concat(sent, changed, r.take()) {
		if req.GetCatalog() != "" {
			left[req.GetCatalog()] = true
		}
		for _, name := range req.GetForget() {
			delete(left, name)
		}
	}
	if len(left) > 0 {
		t.Errorf("the plugin keeps %d catalogs that nobody uses", len(left))
	}
}

// Nobody decides about a catalog of which a part is missing, and what arrived
// is not sent again.
func TestCatalogThatWasSentInPartIsNotUsed(t *testing.T) {
	t.Parallel()
	c, r := connectLimited(t, nil)
	catalog := newCatalog(t, manyCandidates())
	const before = 20
	r.refuse = func(n int) error {
		if n > before {
			return status.Error(codes.Unavailable, "broken off")
		}
		return nil
	}
	if err := c.SyncCatalog(t.Context(), catalog); !host.Unavailable(err) {
		t.Fatalf("got %v", err)
	}
	knows(t, c, catalog, false)
	r.take()
	r.refuse = nil
	if err := c.SyncCatalog(t.Context(), catalog); err != nil {
		t.Fatal(err)
	}
	knows(t, c, catalog, true)
	rest := r.take()
	if whole := rest[len(rest)-1]; len(rest)+before != len(whole.GetParts())+1 {
		t.Errorf("%d parts were sent after the first %d, of %d", len(rest)-1, before, len(whole.GetParts()))
	}
}

// A process that has lost what it knew is sent all of it again.
func TestPartsThatThePluginLostAreSentAgain(t *testing.T) {
	t.Parallel()
	c, r := connectLimited(t, nil)
	cs := manyCandidates()
	if err := c.SyncCatalog(t.Context(), newCatalog(t, cs)); err != nil {
		t.Fatal(err)
	}
	forget := &policypb.SyncCatalogRequest{}
	for _, req := range r.take() {
		forget.Forget = append(forget.Forget, req.GetCatalog())
	}
	if _, err := r.SyncCatalog(t.Context(), forget); err != nil {
		t.Fatal(err)
	}
	cs[0].Weight = 3
	second := newCatalog(t, cs)
	if err := c.SyncCatalog(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	knows(t, c, second, true)
}

// A plugin that knows nothing of parts gets the catalog in one message, and the
// operator learns why it does not take that.
func TestCatalogOfAPluginThatTakesNoParts(t *testing.T) {
	t.Parallel()
	c, r := connectLimited(t, func(info *policypb.GetInfoResponse) { info.Capabilities = nil })
	small := newCatalog(t, manyCandidates()[:10_000/5])
	if err := c.SyncCatalog(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	if n := len(r.take()); n != 1 {
		t.Errorf("sent in %d messages", n)
	}
	knows(t, c, small, true)
	err := c.SyncCatalog(t.Context(), newCatalog(t, manyCandidates()))
	if err == nil || !strings.Contains(err.Error(), "capability catalog_parts") {
		t.Errorf("got %v", err)
	}
}

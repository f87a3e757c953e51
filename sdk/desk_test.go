package sdk_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
	"github.com/usherproxy/usher/sdk/policytest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := removeTestplugin(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

// patience is how long a test waits for what should come at once.
const patience = 2 * time.Minute

// define describes a policy without options.
func define(name string, policies sdk.Policies) sdk.Definition {
	return sdk.Define(name, struct{}{}, func(context.Context, struct{}) (sdk.Policies, error) { return policies, nil })
}

// A line is a connection to a process with some instances, each of which has
// the name of its policy.
type line struct {
	*host.Client
	t       *testing.T
	catalog *host.Catalog // of the candidates a, b and c
}

// connect serves and configures policies.
func connect(t *testing.T, policies map[string]sdk.Policies) *line {
	t.Helper()
	var definitions []sdk.Definition
	for name, p := range policies {
		definitions = append(definitions, define(name, p))
	}
	l := &line{Client: policytest.Connect(t, definitions...), t: t}
	for name := range policies {
		if _, err := l.Configure(t.Context(), name, name, nil); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if l.catalog, err = host.NewCatalog([]policy.Candidate{{ID: "a"}, {ID: "b"}, {ID: "c"}}); err != nil {
		t.Fatal(err)
	}
	if err := l.SyncCatalog(t.Context(), l.catalog); err != nil {
		t.Fatal(err)
	}
	return l
}

// ask returns the question whether request id may start on one of b and c.
func (l *line) ask(id string) *host.AdmitRequest {
	return &host.AdmitRequest{
		Instance: "desk", Request: &policy.Request{ID: id}, Attempt: 1,
		Catalog: l.catalog, Candidates: l.catalog.Candidates[1:],
	}
}

// admit makes a call that must not fail.
func (l *line) admit(req *host.AdmitRequest) *host.Admission {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	a, err := l.Admit(ctx, req)
	if err != nil {
		l.t.Fatalf("admit %s: %v", req.Request.ID, err)
	}
	return a
}

// decide makes a call that must not fail.
func (l *line) decide(req *host.DecideRequest) *host.Decision {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	d, err := l.Decide(ctx, req)
	if err != nil {
		l.t.Fatalf("decide %s: %v", req.Request.ID, err)
	}
	return d
}

// settled returns what becomes of the admission of a decision, which waits if the
// machine was slow.
func (l *line) settled(d *host.Decision, req *host.AdmitRequest) *host.Admission {
	l.t.Helper()
	if d.Admission == nil || !d.Admission.Waiting {
		return d.Admission
	}
	return l.admit(req)
}

// park begins the admission of request id and leaves it waiting.
func (l *line) park(d *desk, id string) *visit {
	l.t.Helper()
	decision := l.decide(&host.DecideRequest{
		Request: &policy.Request{ID: id}, Catalog: l.catalog, Candidates: l.catalog.Candidates[1:], Admit: "desk", Attempt: 1,
	})
	if decision.Admission == nil || !decision.Admission.Waiting {
		l.t.Fatalf("admission is %+v, want one that waits", decision.Admission)
	}
	return d.next(l.t)
}

func (l *line) cancel(tickets ...host.Ticket) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	if err := l.Cancel(ctx, "desk", tickets...); err != nil {
		l.t.Fatalf("cancel %v: %v", tickets, err)
	}
}

func (l *line) release(tickets ...host.Ticket) {
	l.t.Helper()
	var releases []host.Release
	for _, ticket := range tickets {
		releases = append(releases, host.Release{
			Instance: "desk", Ticket: ticket, Outcome: policy.Outcome{Disposition: policy.OK, Duration: time.Second},
		})
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	if err := l.Release(ctx, releases); err != nil {
		l.t.Fatalf("release %v: %v", tickets, err)
	}
}

// A desk is an admission policy that does what its test says.
type desk struct {
	visits   chan *visit
	released chan released
}

// A released lease was released.
type released struct {
	ticket host.Ticket
	out    policy.Outcome
}

// A visit is one call of Admit.
type visit struct {
	desk   *desk
	ctx    context.Context
	req    *policy.AdmitRequest
	answer chan func() (policy.Lease, error)
	left   chan struct{} // closed when Admit noticed the end of its context
}

func newDesk() *desk {
	return &desk{visits: make(chan *visit, 100), released: make(chan released, 100)}
}

func (d *desk) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	v := &visit{d, ctx, req, make(chan func() (policy.Lease, error), 1), make(chan struct{})}
	d.visits <- v
	select {
	case answer := <-v.answer:
		return answer()
	case <-ctx.Done():
		close(v.left)
		return nil, ctx.Err()
	}
}

// next returns the next call of Admit.
func (d *desk) next(t *testing.T) *visit {
	t.Helper()
	return receive(t, d.visits, "a call of Admit")
}

// noMore fails if the policy was called more often than the test looked at.
func (d *desk) noMore(t *testing.T) {
	t.Helper()
	select {
	case v := <-d.visits:
		t.Errorf("Admit was called for request %s, attempt %d", v.req.Request.ID, v.req.Attempt)
	case r := <-d.released:
		t.Errorf("a lease was released: %+v", r)
	default:
	}
}

// admits lets Admit return a lease on candidate i of those that were offered.
func (v *visit) admits(i int) {
	v.answer <- func() (policy.Lease, error) { return v.desk.lease(v.req.Request.ID, v.req.Attempt, i), nil }
}

func (v *visit) fails(err error) {
	v.answer <- func() (policy.Lease, error) { return nil, err }
}

func (d *desk) lease(id string, attempt, i int) policy.Lease {
	return policy.LeaseOn(i, func(_ context.Context, out policy.Outcome) error {
		d.released <- released{host.Ticket{ID: id, Attempt: attempt}, out}
		return nil
	})
}

// A restorableDesk keeps what it was told of a restart.
type restorableDesk struct {
	*desk
	running []policy.Held
	waiting []policy.AdmitRequest
}

func (d *restorableDesk) Restore(_ context.Context, running []policy.Held, waiting []policy.AdmitRequest) ([]policy.Lease, error) {
	d.running, d.waiting = running, waiting
	leases := make([]policy.Lease, len(running))
	for i, h := range running {
		leases[i] = d.lease(h.Request.ID, h.Attempt, 0)
	}
	return leases, nil
}

func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing within %s", what, patience)
		panic("unreachable")
	}
}

// async makes a call whose result is received later.
func async[T any](call func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- call() }()
	return c
}

var (
	_ policy.Admitter = (*desk)(nil)
	_ policy.Restorer = (*restorableDesk)(nil)
)

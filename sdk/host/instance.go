package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// Instance returns the configured policy of the given name as the interfaces
// of package policy. Candidates are sent along whenever they are new; a host
// with a fixed catalog calls the methods of [Client].
func (c *Client) Instance(name string, kinds Kinds) sdk.Policies {
	r := &remote{client: c, instance: name, sent: make(map[string]*Catalog)}
	var p sdk.Policies
	if kinds.Selection {
		p.Selection = remoteSelector{r}
	}
	if kinds.Admission {
		p.Admission = remoteAdmitter{r}
	}
	if kinds.Restorer {
		p.Admission = remoteRestorer{remoteAdmitter{r}}
	}
	if kinds.Observer {
		p.Observer = remoteObserver{r}
	}
	if kinds.Operable {
		p.Operable = remoteOperable{r}
	}
	p.Close = func(ctx context.Context) error { return c.Drain(ctx, name) }
	return p
}

// remote is one instance of a plugin.
type remote struct {
	client   *Client
	instance string

	mu   sync.Mutex
	sent map[string]*Catalog // by name
}

// catalog returns the catalog of candidates that the plugin has.
func (r *remote) catalog(ctx context.Context, candidates []policy.Candidate) (*Catalog, error) {
	catalog, err := NewCatalog(candidates)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.sent[catalog.Name]; ok {
		return known, nil
	}
	if err := r.client.SyncCatalog(ctx, catalog); err != nil {
		return nil, failure(ctx, "send catalog", err)
	}
	r.sent[catalog.Name] = catalog
	return catalog, nil
}

// failure returns the error of a call. It is that of ctx if this has ended, as
// a policy in this process would return it. The plugin may notice a deadline
// before ctx does.
func failure(ctx context.Context, what string, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case status.Code(err) == codes.DeadlineExceeded:
		return context.DeadlineExceeded
	}
	return fmt.Errorf("%s: %w", what, err)
}

type remoteSelector struct{ *remote }

func (r remoteSelector) Select(ctx context.Context, req *policy.SelectRequest) (policy.Selection, error) {
	catalog, err := r.catalog(ctx, req.Candidates)
	if err != nil {
		return policy.Selection{}, err
	}
	d, err := r.client.Decide(ctx, &DecideRequest{
		Request: req.Request, Catalog: catalog, Candidates: req.Candidates, Select: []string{r.instance},
	})
	if err != nil {
		return policy.Selection{}, failure(ctx, "select candidates", err)
	}
	if len(d.Selections) != 1 {
		return policy.Selection{}, fmt.Errorf("select candidates: %d answers", len(d.Selections))
	}
	return d.Selections[0].Selection, d.Selections[0].Err
}

type remoteAdmitter struct{ *remote }

func (r remoteAdmitter) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	catalog, err := r.catalog(ctx, req.Candidates)
	if err != nil {
		return nil, err
	}
	call := &AdmitRequest{
		Instance: r.instance, Request: req.Request, Attempt: req.Attempt, NoWait: req.NoWait, Revoke: req.Revoke,
		Catalog: catalog, Candidates: req.Candidates,
	}
	ticket := Ticket{ID: req.Request.ID, Attempt: req.Attempt}
	a, err := r.client.Wait(ctx, call, func(a *Admission) {
		if req.Waiting != nil {
			req.Waiting(a.Position)
		}
	})
	switch {
	case err != nil:
		return nil, r.abandon(ctx, ticket, err)
	case a.Rejection != nil:
		return nil, a.Rejection
	case a.Err != nil:
		return nil, a.Err
	}
	return r.lease(ticket, req.Candidates, a.Candidate)
}

// abandon ends the wait of a call that failed, and returns why it did.
func (r remoteAdmitter) abandon(ctx context.Context, ticket Ticket, err error) error {
	why := failure(ctx, "admit request "+ticket.ID, err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if err := r.client.Cancel(ctx, r.instance, ticket); err != nil {
		return errors.Join(why, err)
	}
	return why
}

// cancelTimeout is how long a plugin may take to forget a ticket.
const cancelTimeout = 10 * time.Second

func (r remoteAdmitter) lease(ticket Ticket, candidates []policy.Candidate, id string) (policy.Lease, error) {
	for i, c := range candidates {
		if c.ID == id {
			return policy.LeaseOn(i, func(ctx context.Context, out policy.Outcome) error {
				return r.client.Release(ctx, []Release{{Instance: r.instance, Ticket: ticket, Outcome: out}})
			}), nil
		}
	}
	return nil, fmt.Errorf("lease on candidate %q, which was not offered", id)
}

type remoteRestorer struct{ remoteAdmitter }

func (r remoteRestorer) Restore(ctx context.Context, running []policy.Held, waiting []policy.AdmitRequest) ([]policy.Lease, error) {
	held := make([]Held, len(running))
	for i, h := range running {
		catalog, err := r.catalog(ctx, []policy.Candidate{h.Candidate})
		if err != nil {
			return nil, err
		}
		held[i] = Held{Request: h.Request, Attempt: h.Attempt, Revoke: h.Revoke, Catalog: catalog, Candidates: []policy.Candidate{h.Candidate}}
	}
	queue := make([]Held, len(waiting))
	for i, w := range waiting {
		catalog, err := r.catalog(ctx, w.Candidates)
		if err != nil {
			return nil, err
		}
		queue[i] = Held{Request: w.Request, Attempt: w.Attempt, Catalog: catalog, Candidates: w.Candidates}
	}
	if err := r.client.Restore(ctx, r.instance, held, queue); err != nil {
		return nil, err
	}
	leases := make([]policy.Lease, len(running))
	for i, h := range running {
		lease, err := r.lease(Ticket{ID: h.Request.ID, Attempt: h.Attempt}, []policy.Candidate{h.Candidate}, h.Candidate.ID)
		if err != nil {
			return nil, err
		}
		leases[i] = lease
	}
	return leases, nil
}

type remoteObserver struct{ *remote }

func (r remoteObserver) Observe(ctx context.Context, res policy.AttemptResult) {
	catalog, err := r.catalog(ctx, []policy.Candidate{res.Candidate})
	if err == nil {
		err = r.client.Observe(ctx, []Observation{{Instances: []string{r.instance}, Catalog: catalog, Result: res}})
	}
	_ = err // an observation that is lost is a lesson that comes later
}

type remoteOperable struct{ *remote }

func (r remoteOperable) Operate(ctx context.Context, cmd policy.Command) (json.RawMessage, error) {
	out, err := r.client.Operate(ctx, r.instance, cmd)
	if _, refused := errors.AsType[*CommandError](err); err != nil && !refused {
		err = failure(ctx, "carry out command "+cmd.Name, err)
	}
	return out, err
}

var (
	_ policy.Selector = remoteSelector{}
	_ policy.Admitter = remoteAdmitter{}
	_ policy.Restorer = remoteRestorer{}
	_ policy.Observer = remoteObserver{}
	_ policy.Operable = remoteOperable{}
)

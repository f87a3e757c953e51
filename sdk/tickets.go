package sdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
)

// ticketKey names one admission of a request.
type ticketKey struct {
	id      string
	attempt int
}

// A ticketTable holds the admissions of one instance between the calls of the
// host: those that wait and those that run. It makes the host's calls
// idempotent, so that a call whose answer was lost can be sent again.
type ticketTable struct {
	admitter policy.Admitter

	mu       sync.Mutex // guards the fields below
	open     map[ticketKey]*admission
	restored map[ticketKey]policy.AdmitRequest // waiting, not asked for again yet
	drained  bool                              // nothing begins any more

	running sync.WaitGroup // goroutines inside of Admit
}

// errDrained says that an instance has ended. To the host it is an unknown one.
var errDrained = status.Error(codes.FailedPrecondition, "the instance is drained")

func newTicketTable(admitter policy.Admitter) *ticketTable {
	return &ticketTable{
		admitter: admitter,
		open:     make(map[ticketKey]*admission),
		restored: make(map[ticketKey]policy.AdmitRequest),
	}
}

// An admission is one call of Admit, and the lease that it gave.
type admission struct {
	key    ticketKey
	cancel context.CancelCauseFunc
	trace  *policypb.TraceContext // the span of the policy's call, or nil
	done   chan struct{}          // closed when lease or err is set
	lease  policy.Lease
	err    error

	// index is the catalog index of the lease's candidate, as the one who
	// began the admission knew it.
	index uint32

	mu       sync.Mutex
	position int
	moved    chan struct{} // closed and replaced when position changes
}

// begin returns the admission of key. If there is none, it starts one: it
// calls Admit with req in a context that has the values of ctx but ends only by
// cancel, and that trace puts a span into. indexes are the catalog indexes of
// the candidates of req.
//
// It starts none in a context that has ended. A host that ends a call sends
// Cancel afterwards, and Cancel may have come before this call got here: then
// nobody would ever end what starts here. The end of the call comes before the
// Cancel on the wire, so a Cancel that found nothing is seen as ctx.Err here.
func (t *ticketTable) begin(ctx context.Context, key ticketKey, req *policy.AdmitRequest, indexes []uint32,
	trace func(context.Context) (context.Context, func(error)),
) (*admission, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := t.open[key]; ok {
		return a, nil
	}
	if t.drained {
		return nil, errDrained
	}
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	delete(t.restored, key)
	a := &admission{key: key, done: make(chan struct{}), moved: make(chan struct{})}
	ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	req.Waiting = a.move
	t.open[key] = a
	ctx, ended := trace(ctx)
	a.trace = spanContext(ctx)
	t.running.Go(func() {
		defer close(a.done)
		a.settle(ctx, t.admitter, req, indexes)
		ended(a.err)
		if a.err != nil {
			a.cancel(nil)
		}
	})
	return a, nil
}

// settle asks the policy and keeps its answer.
func (a *admission) settle(ctx context.Context, admitter policy.Admitter, req *policy.AdmitRequest, indexes []uint32) {
	var i int
	a.lease, i, a.err = admit(ctx, admitter, req)
	switch {
	case a.err != nil && context.Cause(ctx) == errDrained:
		a.err = policy.Reject(policy.ReasonPluginUnavailable, 0)
	case a.err != nil:
	case i < 0 || i >= len(indexes):
		a.err = fmt.Errorf("lease on candidate %d of %d", i, len(indexes))
		release(ctx, a.lease, policy.Outcome{Disposition: policy.Denied})
	default:
		a.index = indexes[i]
	}
}

// wait is like [admission.wait]. It forgets an admission that failed, once it
// has somebody to tell: the ticket may then be sent again.
func (t *ticketTable) wait(ctx context.Context, a *admission, seen int) (position int, settled bool) {
	position, settled = a.wait(ctx, seen)
	if settled && a.err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.open[a.key] == a {
			delete(t.open, a.key)
		}
	}
	return position, settled
}

// take removes the admission of key and returns it, or nil.
func (t *ticketTable) take(key ticketKey) *admission {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.open[key]
	delete(t.open, key)
	return a
}

// end ends the admission of key with out: a wait is cancelled, a lease is
// released. It returns when the policy has done so. Unknown keys are ignored.
func (t *ticketTable) end(ctx context.Context, key ticketKey, out policy.Outcome) {
	if a := t.take(key); a != nil {
		a.cancel(nil)
		<-a.done
		if a.err == nil {
			release(ctx, a.lease, out)
		}
		return
	}
	t.mu.Lock()
	req, ok := t.restored[key]
	delete(t.restored, key)
	t.mu.Unlock()
	if !ok {
		return
	}
	gone, cancel := context.WithCancel(ctx)
	cancel() // tells the policy that a restored ticket has left
	if lease, _, err := admit(gone, t.admitter, &req); err == nil {
		release(ctx, lease, out)
	}
}

// close rejects all waits, releases all leases and waits until that is done.
func (t *ticketTable) close(ctx context.Context) {
	t.mu.Lock()
	t.drained = true
	keys := make([]ticketKey, 0, len(t.open))
	for key, a := range t.open {
		a.cancel(errDrained) // all of them, before any release lets one in
		keys = append(keys, key)
	}
	t.mu.Unlock()
	for _, key := range keys {
		t.end(ctx, key, policy.Outcome{Disposition: policy.Denied})
	}
	t.running.Wait()
}

// restore hands what the host holds to the policy.
func (t *ticketTable) restore(ctx context.Context, running []policy.Held, indexes []uint32, waiting []policy.AdmitRequest) error {
	restorer, ok := t.admitter.(policy.Restorer)
	if !ok {
		return errors.New("the admission policy cannot restore")
	}
	leases, err := callRestore(ctx, restorer, running, waiting)
	if err != nil {
		return err
	}
	if len(leases) != len(running) {
		return fmt.Errorf("restored %d leases of %d", len(leases), len(running))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, held := range running {
		a := &admission{
			key: ticketKey{held.Request.ID, held.Attempt}, lease: leases[i], index: indexes[i],
			done: make(chan struct{}), cancel: func(error) {},
		}
		close(a.done)
		t.open[a.key] = a
	}
	for _, req := range waiting {
		t.restored[ticketKey{req.Request.ID, req.Attempt}] = req
	}
	return nil
}

// move records the position of a waiting admission.
func (a *admission) move(position int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if position != a.position {
		a.position = position
		close(a.moved)
		a.moved = make(chan struct{})
	}
}

// wait blocks until the admission is settled, its position differs from seen,
// or ctx ends. It returns the position, and whether the admission is settled.
func (a *admission) wait(ctx context.Context, seen int) (position int, settled bool) {
	for {
		a.mu.Lock()
		position, moved := a.position, a.moved
		a.mu.Unlock()
		select {
		case <-a.done:
			return position, true
		default:
		}
		if position != seen {
			return position, false
		}
		select {
		case <-a.done:
			return position, true
		case <-moved:
		case <-ctx.Done():
			return position, false
		}
	}
}

// admit calls the policy and turns a panic into an error. It returns the lease
// and the index of its candidate.
func admit(ctx context.Context, a policy.Admitter, req *policy.AdmitRequest) (lease policy.Lease, candidate int, err error) {
	defer recoverTo(&err)
	lease, err = a.Admit(ctx, req)
	if err != nil {
		return nil, 0, err
	}
	if lease == nil {
		return nil, 0, errors.New("the policy returned neither a lease nor an error")
	}
	return lease, lease.Candidate(), nil
}

func callRestore(ctx context.Context, r policy.Restorer, running []policy.Held, waiting []policy.AdmitRequest) (leases []policy.Lease, err error) {
	defer recoverTo(&err)
	return r.Restore(ctx, running, waiting)
}

// releaseTimeout is how long a policy may take to release a lease.
const releaseTimeout = 10 * time.Second

// release calls the lease. Its failure is the policy's own business: the lease
// has ended for the host whatever the policy made of it.
func release(ctx context.Context, lease policy.Lease, out policy.Outcome) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	var err error
	func() {
		defer recoverTo(&err)
		err = lease.Release(ctx, out)
	}()
	if err != nil {
		slog.ErrorContext(ctx, "release lease", "error", err)
	}
}

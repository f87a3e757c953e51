package sdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
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
	revoke   func(key ticketKey, why policy.Reason) // tells the host; does not block

	mu       sync.Mutex // guards the fields below
	open     map[ticketKey]*admission
	restored map[ticketKey]policy.AdmitRequest // waiting, not asked for again yet
	drained  bool                              // nothing begins any more

	running sync.WaitGroup // goroutines inside of Admit
}

// errDrained says that an instance has ended. To the host it is an unknown one.
var errDrained = status.Error(codes.FailedPrecondition, "the instance is drained")

func newTicketTable(admitter policy.Admitter, revoke func(ticketKey, policy.Reason)) *ticketTable {
	return &ticketTable{
		admitter: admitter,
		revoke:   revoke,
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

	// What run asks the policy.
	ctx     context.Context
	req     *policy.AdmitRequest
	indexes []uint32
	ended   func(error)

	revoked atomic.Bool

	mu       sync.Mutex // guards what follows
	position int
	settled  bool
	hearers  []hearer
}

// A hearer wants to know how an admission gets on.
type hearer interface {
	// hear is told of a new position and of the end, which comes last. It does
	// not block. It returns whether it wants to hear more.
	hear(a *admission, position int, settled bool) (more bool)
}

// begin returns the admission of key. If there is none, it makes a new one,
// which the caller is to run: in a context that has the values of ctx but ends
// only by cancel, and that trace puts a span into. indexes are the catalog
// indexes of the candidates of req.
//
// It makes none in a context that has ended. A host that ends a call sends
// Cancel afterwards, and Cancel may have come before this call got here: then
// nobody would ever end what starts here. The end of the call comes before the
// Cancel on the wire, so a Cancel that found nothing is seen as ctx.Err here.
func (t *ticketTable) begin(ctx context.Context, key ticketKey, req *policy.AdmitRequest, indexes []uint32,
	trace func(context.Context) (context.Context, func(error)),
) (a *admission, fresh bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := t.open[key]; ok {
		return a, false, nil
	}
	if t.drained {
		return nil, false, errDrained
	}
	if ctx.Err() != nil {
		return nil, false, status.FromContextError(ctx.Err()).Err()
	}
	delete(t.restored, key)
	a = &admission{key: key, done: make(chan struct{}), req: req, indexes: indexes}
	ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	req.Waiting = a.move
	req.Revoke = t.revoker(a)
	t.open[key] = a
	a.ctx, a.ended = trace(ctx)
	a.trace = spanContext(a.ctx)
	t.running.Add(1)
	return a, true, nil
}

// run asks the policy about a fresh admission, and returns when it is settled.
func (t *ticketTable) run(a *admission) {
	defer t.running.Done()
	a.settle(a.ctx, t.admitter, a.req, a.indexes)
	a.ended(a.err)
	if a.err != nil {
		a.cancel(nil)
	}
	a.ctx, a.req, a.indexes, a.ended = nil, nil, nil, nil // it may run for hours
	close(a.done)
	if a.tellEnd() && a.err != nil {
		t.forget(a)
	}
}

// revoker returns what a policy calls that no longer stands for a lease.
func (t *ticketTable) revoker(a *admission) func(policy.Reason) {
	return func(why policy.Reason) {
		if a.revoked.CompareAndSwap(false, true) {
			t.revoke(a.key, why)
		}
	}
}

// forget drops an admission that failed, once it has somebody to tell: the
// ticket may then be sent again.
func (t *ticketTable) forget(a *admission) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[a.key] == a {
		delete(t.open, a.key)
	}
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
	case context.Cause(ctx) == errDrained: // it got a place that another one left just now
		release(ctx, a.lease, policy.Outcome{Disposition: policy.Denied})
		a.err = policy.Reject(policy.ReasonPluginUnavailable, 0)
	default:
		a.index = indexes[i]
	}
}

// wait blocks until the admission is settled, its position differs from seen,
// or ctx ends. It returns the position, and whether the admission is settled.
func (t *ticketTable) wait(ctx context.Context, a *admission, seen int) (position int, settled bool) {
	news := make(waiter, 1)
	a.listen(news, seen)
	defer a.unlisten(news)
	select {
	case <-news:
	case <-ctx.Done():
	}
	position, settled = a.state()
	if settled && a.err != nil {
		t.forget(a)
	}
	return position, settled
}

// A waiter is a hearer that receives once.
type waiter chan struct{}

func (w waiter) hear(*admission, int, bool) (more bool) {
	w <- struct{}{} // has room, and hears once
	return false
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
	restored := make([]*admission, len(running))
	for i := range running {
		a := &admission{
			key:  ticketKey{running[i].Request.ID, running[i].Attempt},
			done: make(chan struct{}), cancel: func(error) {}, index: indexes[i], settled: true,
		}
		close(a.done)
		restored[i], running[i].Revoke = a, t.revoker(a)
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
	for i, a := range restored {
		a.lease = leases[i]
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
	if position != a.position && !a.settled {
		a.position = position
		a.tell()
	}
}

// tellEnd tells that the admission is settled, and reports whether anybody
// heard it.
func (a *admission) tellEnd() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settled = true
	heard := len(a.hearers) > 0
	a.tell()
	return heard
}

func (a *admission) tell() {
	a.hearers = slices.DeleteFunc(a.hearers, func(h hearer) bool { return !h.hear(a, a.position, a.settled) })
}

// listen tells h at once if the admission is settled or its position differs
// from seen, and from then on whatever is new.
func (a *admission) listen(h hearer, seen int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if (a.settled || a.position != seen) && !h.hear(a, a.position, a.settled) || a.settled {
		return
	}
	a.hearers = append(a.hearers, h)
}

// unlisten lets h hear no more. It reports whether it would have.
func (a *admission) unlisten(h hearer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.hearers, h)
	if i < 0 {
		return false
	}
	a.hearers = slices.Delete(a.hearers, i, i+1)
	return true
}

// state returns the position, and whether the admission is settled.
func (a *admission) state() (position int, settled bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.position, a.settled
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

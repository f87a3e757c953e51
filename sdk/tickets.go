package sdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

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

	mu       sync.Mutex // guards the maps
	open     map[ticketKey]*admission
	restored map[ticketKey]policy.AdmitRequest // waiting, not asked for again yet
	running  sync.WaitGroup                    // goroutines inside of Admit
}

func newTicketTable(admitter policy.Admitter) *ticketTable {
	return &ticketTable{
		admitter: admitter,
		open:     make(map[ticketKey]*admission),
		restored: make(map[ticketKey]policy.AdmitRequest),
	}
}

// An admission is one call of Admit, and the lease that it gave.
type admission struct {
	cancel context.CancelFunc
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
func (t *ticketTable) begin(ctx context.Context, key ticketKey, req *policy.AdmitRequest, indexes []uint32,
	trace func(context.Context) (context.Context, func(error)),
) *admission {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := t.open[key]; ok {
		return a
	}
	delete(t.restored, key)
	a := &admission{done: make(chan struct{}), moved: make(chan struct{})}
	ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	req.Waiting = a.move
	t.open[key] = a
	ctx, ended := trace(ctx)
	a.trace = spanContext(ctx)
	t.running.Go(func() {
		defer close(a.done)
		a.settle(ctx, t.admitter, req, indexes)
		ended(a.err)
		if a.err != nil {
			a.cancel()
			t.forget(key, a)
		}
	})
	return a
}

// settle asks the policy and keeps its answer.
func (a *admission) settle(ctx context.Context, admitter policy.Admitter, req *policy.AdmitRequest, indexes []uint32) {
	a.lease, a.err = admit(ctx, admitter, req)
	if a.err != nil {
		return
	}
	i := a.lease.Candidate()
	if i < 0 || i >= len(indexes) {
		a.err = fmt.Errorf("lease on candidate %d of %d", i, len(indexes))
		release(ctx, a.lease, policy.Outcome{Disposition: policy.Denied})
		return
	}
	a.index = indexes[i]
}

// forget drops a if it is still the admission of key.
func (t *ticketTable) forget(key ticketKey, a *admission) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[key] == a {
		delete(t.open, key)
	}
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
		a.cancel()
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
	if lease, err := admit(gone, t.admitter, &req); err == nil {
		release(ctx, lease, out)
	}
}

// close rejects all waits, releases all leases and waits until that is done.
func (t *ticketTable) close(ctx context.Context) {
	t.mu.Lock()
	keys := make([]ticketKey, 0, len(t.open))
	for key := range t.open {
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
	leases, err := restorer.Restore(ctx, running, waiting)
	if err != nil {
		return err
	}
	if len(leases) != len(running) {
		return fmt.Errorf("restored %d leases of %d", len(leases), len(running))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, held := range running {
		a := &admission{lease: leases[i], index: indexes[i], done: make(chan struct{}), cancel: func() {}}
		close(a.done)
		t.open[ticketKey{held.Request.ID, held.Attempt}] = a
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

// admit calls the policy and turns a panic into an error.
func admit(ctx context.Context, a policy.Admitter, req *policy.AdmitRequest) (lease policy.Lease, err error) {
	defer recoverTo(&err)
	lease, err = a.Admit(ctx, req)
	if err == nil && lease == nil {
		err = errors.New("the policy returned neither a lease nor an error")
	}
	return lease, err
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

package outage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/memory"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A Mode says what becomes of requests while the shared store is out of reach.
type Mode string

// The modes. The set is closed.
const (
	// Closed refuses them.
	Closed Mode = "closed"
	// Local admits them within this process's share of each limit. With what ran
	// before, at most one time and (replicas-1)/replicas of a limit may run at
	// once until that has ended.
	Local Mode = "local"
	// Open admits them at once, beyond any limit.
	Open Mode = "open"
)

// A State is where a ladder stands.
type State string

// The states. The set is closed.
const (
	// Shared: the shared store decides.
	Shared State = "shared"
	// Alone: it is out of reach.
	Alone State = "alone"
	// Returning: it is back, and nobody is admitted until all replicas had the
	// time to notice.
	Returning State = "returning"
)

const (
	// countEvery is how often it is looked who else uses the store.
	countEvery = 5 * time.Second
	// returnAfter is longer than a replica takes to notice that the store is
	// back: a pause between two tries, and a try that fails.
	returnAfter = 4 * time.Second
)

// errMoved ends a wait whose place is elsewhere from now on.
var errMoved = errors.New("the store of leases has changed")

// A Ladder stands before a shared store. It is safe for concurrent use.
type Ladder struct {
	shared *postgres.Store
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex // guards all below
	state   State
	since   time.Time
	epoch   context.Context // ends when state changes
	moved   context.CancelCauseFunc
	alone   *memory.Store // what is admitted alone
	held    map[*lease]struct{}
	share   share
	returns *time.Timer // ends Returning

	awaiting int // requests that wait for it to end
	closed   bool
}

// New returns a ladder before a store. It owns one goroutine until it is closed.
func New(shared *postgres.Store) *Ladder {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Ladder{shared: shared, cancel: cancel, held: make(map[*lease]struct{}), share: share{replicas: 1}}
	l.enter(Shared)
	l.done.Go(func() { l.watch(ctx) })
	return l
}

// Close ends the goroutine. From then on the shared store alone decides.
func (l *Ladder) Close() {
	l.cancel()
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.returns != nil {
		l.returns.Stop()
	}
	l.closed = true
	l.enter(Shared)
}

// enter changes the state. The lock is held, or the ladder is new.
func (l *Ladder) enter(s State) {
	if l.moved != nil {
		l.moved(errMoved)
	}
	l.state, l.since = s, time.Now()
	l.epoch, l.moved = context.WithCancelCause(context.Background())
}

// watch follows the store, and counts replicas while it can.
func (l *Ladder) watch(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		_, changes := l.shared.Health()
		l.follow()
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-timer.C:
			l.count(ctx)
			timer.Reset(countEvery/2 + rand.N(countEvery))
		}
	}
}

// count looks who else uses the store.
func (l *Ladder) count(ctx context.Context) {
	if h, _ := l.shared.Health(); h.Away || h.Replica == 0 {
		return
	}
	n, before, err := l.shared.Replicas(ctx)
	if err != nil || n == 0 {
		return // what was seen last stands
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.share = share{int64(n), int64(min(before, n-1))}
}

// follow brings the state in line with the store's.
func (l *Ladder) follow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	health, _ := l.shared.Health()
	switch {
	case l.closed:
	case health.Away && l.state != Alone:
		l.leave(health)
	case !health.Away && l.state == Alone:
		l.comeBack()
	}
}

// leave goes on alone.
func (l *Ladder) leave(why postgres.Health) {
	if l.returns != nil {
		l.returns.Stop()
		l.returns = nil
	}
	if n := int64(why.Others); n > 0 { // who go on with the whole limits
		l.share = share{max(l.share.replicas, n+1), n}
	}
	l.alone = memory.New()
	for h := range l.held {
		l.countAlone(h)
	}
	l.enter(Alone)
	slog.Default().Error("the store of leases is out of reach: going on alone where on_store_error says so",
		"error", fmt.Sprint(why.Problem), "replicas", l.share.replicas, "running", len(l.held),
		"overdraft", "up to (replicas-1)/replicas of a limit, until what ran before has ended")
}

// comeBack tells the store what was admitted alone.
func (l *Ladder) comeBack() {
	brought := 0
	for h := range l.held {
		if h.bring(l.shared) {
			brought++
		}
	}
	l.alone = nil
	l.enter(Returning)
	after := returnAfter + rand.N(time.Second)
	slog.Default().Info("the store of leases is back: admitting nobody until all replicas have told what they run",
		"brought", brought, "for", after)
	l.returns = time.AfterFunc(after, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.state == Returning && !l.closed {
			l.enter(Shared)
		}
	})
}

// countAlone lets what runs count towards the share.
func (l *Ladder) countAlone(h *lease) {
	held := h.held
	scopes := *held.Request
	scopes.Scopes, _ = l.share.of(held.Request.Scopes)
	held.Candidate.Scopes, _ = l.share.of(held.Candidate.Scopes)
	held.Request = &scopes
	if leases, err := l.alone.Restore(context.Background(), []policy.Held{held}, nil, queue.Rules{}); err == nil {
		h.alone = leases[0]
	}
}

// now returns the state, and what ends when it changes.
func (l *Ladder) now() (State, context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.epoch
}

// State returns who decides at this moment.
func (l *Ladder) State() State {
	state, _ := l.now()
	return state
}

// Standing is what is to be known of a ladder.
type Standing struct {
	State    State     `json:"state"`
	Since    time.Time `json:"since"`
	Replicas int64     `json:"replicas"` // as they were seen last
	Running  int       `json:"running"`  // in this process, under an instance that goes on
}

// Standing returns where the ladder stands.
func (l *Ladder) Standing() Standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Standing{l.state, l.since, l.share.replicas, len(l.held)}
}

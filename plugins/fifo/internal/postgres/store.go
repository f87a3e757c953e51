package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A Store keeps leases and queues in a database. Its methods are those of a
// fifo.Store. One goroutine of it speaks with the database and one listens.
type Store struct {
	db     *database
	cancel context.CancelFunc // ends both goroutines
	done   sync.WaitGroup     // until they have ended
	wake   chan struct{}      // makes the first one take a turn; holds one

	mu      sync.Mutex // guards all below
	id      int64      // of the replica, 0 before it has joined
	machine *machine
	calls   map[name]*call // that wait or run, or have asked for it
	pending []request      // commands for the next step
	places  places
	credits credits

	believeUntil time.Time     // when it does not rely on its lease any more
	offset       time.Duration // of the database's clock from ours
	hurried      []*call       // that wait and may not, see hurry

	fenced bool // others have taken this replica for dead, and it has not joined since

	crowded  bool          // all who asked with the last step have to wait
	pressing bool          // there is something urgent to say or to read
	pressed  chan struct{} // tells it; holds one

	unbound []*call        // that have not been told that they wait
	readAt  time.Time      // the log was read after that instant
	line    line           // of the calls that wait for an answer
	freeing map[string]int // commands that will free a part of a scope
	waiting int            // calls that wait
	away    bool           // the store is out of reach, or closed
	closed  bool

	// Until then nobody is admitted: the database has lost the end of the log, and
	// other replicas may not have told yet what they run.
	holdUntil time.Time

	listening bool
	ahead     map[int64]published // entries that have come before those that they follow
	missing   int64               // the one that miss looks for soon, or 0
	left      bool                // another replica has, see invited
	toldAt    time.Time           // when positions were looked at last
	saving    bool
	notifying bool
	asleep    map[int64]bool // replicas to wake
	health    health
}

// schemaName matches names that need no quotes anywhere.
var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,40}$`)

// CheckSchema returns what is wrong with the name of a schema.
func CheckSchema(name string) error {
	if !schemaName.MatchString(name) {
		return fmt.Errorf("%q is not a name of small letters, digits and underscores", name)
	}
	return nil
}

// Open returns the store that the given schema of a database holds. It does not
// wait for the database.
func Open(dsn, schema string) (*Store, error) { return open(dsn, schema, rulesVersion) }

func open(dsn, schema string, rules int) (*Store, error) {
	if err := CheckSchema(schema); err != nil {
		return nil, err
	}
	db, err := openDatabase(dsn, schema)
	if err != nil {
		return nil, err
	}
	db.rules = rules
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{
		db: db, cancel: cancel, wake: make(chan struct{}, 1), calls: make(map[name]*call), asleep: make(map[int64]bool),
		credits: credits{quiet: quietFor}, freeing: make(map[string]int), pressed: make(chan struct{}, 1),
	}
	s.done.Go(func() { s.run(ctx) })
	s.done.Go(func() { s.listen(ctx) })
	return s, nil
}

// Close gives up all that runs and waits in this process. Calls that wait are
// refused.
func (s *Store) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout/2)
	defer cancel()
	s.cancel()
	s.done.Wait()
	s.mu.Lock()
	s.away, s.closed = true, true
	for _, c := range s.calls {
		s.end(c, unavailable())
	}
	id := s.id
	s.mu.Unlock()
	defer s.db.pool.Close()
	if id == 0 {
		return nil
	}
	if err := s.db.leave(ctx, id); err != nil {
		return fmt.Errorf("leave the store: %w", err)
	}
	return s.db.notify(ctx, everybody)
}

// kick makes the store take a turn.
func (s *Store) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Admit decides on a request and waits if it must.
func (s *Store) Admit(ctx context.Context, req *policy.AdmitRequest, rules queue.Rules) (policy.Lease, error) {
	c, spent, err := s.ask(ctx, req, rules)
	switch {
	case err != nil:
		return nil, err
	case spent:
		return &lessee{s, c, 0}, nil
	}
	if err := s.wait(ctx, c, req); err != nil {
		return nil, err
	}
	candidate := c.indexIn(req.Candidates)
	if candidate < 0 { // restored, and now asked for with other candidates
		s.forget(c)
		return s.Admit(ctx, req, rules)
	}
	return &lessee{s, c, candidate}, nil
}

// ask returns the call for a request, which is under way from then on, or runs on
// credits.
func (s *Store) ask(ctx context.Context, req *policy.AdmitRequest, rules queue.Rules) (c *call, spent bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.attach(req); c != nil {
		return c, false, nil
	}
	c = newCall(req, rules)
	switch {
	case ctx.Err() != nil:
		return nil, false, ctx.Err()
	case len(req.Candidates) == 0:
		return nil, false, &policy.Rejection{Reason: policy.ReasonNoCandidate}
	case s.calls[c.name()] != nil:
		return nil, false, inUse(c.name())
	case s.spend(c, req):
		s.calls[c.name()] = c
		return c, true, nil
	case s.away:
		return nil, false, unavailable()
	}
	s.calls[c.name()] = c
	s.asks(c)
	s.send(request{command: command{Admit: &c.record}, call: c})
	return c, false, nil
}

func inUse(n name) error { return fmt.Errorf("ticket %s, attempt %d, is in use", n.ID, n.Attempt) }

// unavailable refuses what the store cannot decide.
func unavailable() error {
	return &policy.Rejection{Reason: policy.ReasonStoreUnavailable, RetryAfter: awayAfter}
}

// send sends a command with the next step.
func (s *Store) send(r request) {
	s.pending = append(s.pending, r)
	if r.Hand == nil && (r.Admit == nil || r.call.record.NoWait) {
		s.pressLocked()
	}
	s.kick()
}

// A lessee is the lease of a running call.
type lessee struct {
	store     *Store
	call      *call
	candidate int
}

var _ policy.Lease = (*lessee)(nil)

func (l *lessee) Candidate() int { return l.candidate }

// Release does not wait for the database: if it is out of reach, the end of the
// lease is told later, and if this process ends, the lease ends with it.
func (l *lessee) Release(_ context.Context, out policy.Outcome) error {
	s, c := l.store, l.call
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.state != running {
		return nil
	}
	var tokens *int64
	if out.Usage != nil {
		total := out.Usage.Total()
		tokens = &total
	}
	if s.handOver(c, tokens) {
		return nil
	}
	spent := c.credits != nil
	s.end(c, nil)
	if !spent {
		s.free(c, 1)
		s.send(request{command: command{Release: &release{name: c.name(), Tokens: tokens}}, call: c})
	}
	return nil
}

// logger is that of the process.
func logger() *slog.Logger { return slog.Default().With("store", "postgres") }

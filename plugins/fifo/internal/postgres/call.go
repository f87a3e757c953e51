package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A call is a request of this process, from the call of Admit to the release.
type call struct {
	record queue.Record // with the arrival that the host counted
	place  int64        // the arrival for all replicas, once it is known
	state  callState
	sent   bool          // the store may know of it
	ticket *queue.Ticket // in the machine, while it is there

	// on and index are the candidate that it runs on, once it does.
	on    queue.CandidateRecord
	index int

	// credits are what it runs on if the log does not know of it, and asked are
	// those that it keeps from others until it has an answer of the log.
	credits, asked []*credit
	undecided      bool // it is counted in Store.line
	early          bool // as one that may come before others
	inline         [8]*credit

	revoke func(policy.Reason) // ends it while it runs, or nil

	queued chan struct{} // closed when it has a place, or more than that
	done   chan struct{} // closed when it runs, or is refused with err
	err    error

	bindAt time.Time // when others have read of it who might pass it, see bind
	told   int       // the position that was told last
	move   chan int  // the next one to tell, if somebody wants to know; holds one

	// abandon ends the wait if nobody asks for a restored place, or for the
	// lease that it led to. It is nil once somebody did.
	abandon *time.Timer
}

type callState uint8

const (
	asked callState = iota
	waiting
	running
	over
)

func newCall(req *policy.AdmitRequest, rules queue.Rules) *call {
	c := &call{record: queue.NewRecord(req, rules), queued: make(chan struct{}), done: make(chan struct{})}
	c.follow(req)
	return c
}

func (c *call) name() name { return name{c.record.ID, c.record.Attempt} }

// held returns the scopes that c holds while it runs, some of them perhaps more
// than once.
func (c *call) held() []queue.ScopeRecord { return slices.Concat(c.record.Scopes, c.on.Scopes) }

// follow makes the positions of c known to req, and its end while it runs.
func (c *call) follow(req *policy.AdmitRequest) {
	if req.Waiting != nil {
		c.move = make(chan int, 1)
	}
	c.revoke = req.Revoke
}

// indexIn returns where in the list the candidate is that c runs on, or -1.
func (c *call) indexIn(candidates []policy.Candidate) int {
	if c.index < len(candidates) && candidates[c.index].ID == c.on.ID {
		return c.index
	}
	return slices.IndexFunc(candidates, func(o policy.Candidate) bool { return o.ID == c.on.ID })
}

// queue notes that c waits.
func (s *Store) queue(c *call) {
	if c.state == asked {
		c.state = waiting
		s.waiting++
		close(c.queued)
	}
}

// start notes that c runs on the candidate of that index.
func (s *Store) start(c *call, candidate int) {
	if c.state == running {
		return
	}
	s.queue(c)
	s.waiting--
	c.state, c.index, c.on = running, candidate, c.record.Candidates[candidate]
	close(c.done)
}

// end ends c, with err if it is a wait.
func (s *Store) end(c *call, err error) {
	if c.state == over {
		return
	}
	delete(s.calls, c.name())
	s.answered(c)
	s.repay(c)
	if c.abandon != nil {
		c.abandon.Stop()
	}
	if c.state == waiting {
		s.waiting--
	}
	if c.state != running {
		c.err = err
		close(c.done)
	}
	c.state = over
}

// wait returns when c runs, or with the error by which its wait has ended.
func (s *Store) wait(ctx context.Context, c *call, req *policy.AdmitRequest) error {
	var late <-chan time.Time
	queued := c.queued
	for {
		select {
		case <-c.done:
			c.tellLast(req)
			return c.err
		case <-queued:
			queued = nil
			if d := c.patience(); d > 0 {
				timer := time.NewTimer(d)
				defer timer.Stop()
				late = timer.C
			}
		case position := <-c.move:
			req.Waiting(position)
		case <-ctx.Done():
			return s.giveUp(c, func() error { return ctx.Err() })
		case <-late:
			c.tellLast(req)
			return s.giveUp(c, func() error { return s.late(c) })
		}
	}
}

// tellLast tells that c has waited, if not for long.
func (c *call) tellLast(req *policy.AdmitRequest) {
	select {
	case position := <-c.move:
		req.Waiting(position)
	default:
	}
}

// patience returns how long c may wait, or 0 for ever.
func (c *call) patience() time.Duration {
	if c.record.NoWait {
		return recallWithin
	}
	return c.record.Rules.MaxWait
}

// giveUp ends the wait of c with what err returns, unless it has ended already.
func (s *Store) giveUp(c *call, err func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c.state {
	case running:
		return nil
	case over:
		return c.err
	}
	s.drop(c, err())
	return c.err
}

// late returns the error for a call that waits too long.
func (s *Store) late(c *call) error {
	if !s.inLine(c) { // is being brought back
		return &policy.Rejection{Reason: policy.ReasonQueueTimeout, RetryAfter: c.record.Rules.MaxWait}
	}
	if c.record.NoWait {
		return s.machine.queue.Busy(s.machine.at, c.ticket)
	}
	return s.machine.queue.Late(s.machine.at, c.ticket)
}

// inLine reports whether the machine knows where c waits.
func (s *Store) inLine(c *call) bool {
	return c.state == waiting && c.ticket != nil && s.machine.owners[c.ticket] == s.id
}

// forget ends a call that nobody will use.
func (s *Store) forget(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(c, nil)
}

// drop ends c, and its ticket if there may be one.
func (s *Store) drop(c *call, err error) {
	if c.state == over {
		return
	}
	s.end(c, err)
	if c.sent {
		n := c.name()
		s.free(c, 1)
		s.send(request{command: command{Forget: &n}, call: c})
	}
}

// bind tells c that it waits, once nobody will pass it: those who were lent what it
// may need have said that they start nobody else on it, and who might have had an
// heir that comes after c has read of c.
func (s *Store) bind(c *call) (done bool) {
	switch {
	case !s.inLine(c):
		return true
	case time.Now().Before(c.bindAt) || !s.machine.queue.Binding(c.ticket, s.id):
		return false
	}
	c.tell(s.machine.queue.Position(c.ticket))
	return true
}

// bindSoon does so when it is time.
func (s *Store) bindSoon(c *call) {
	if s.bind(c) {
		return
	}
	s.unbound = append(s.unbound, c)
	if d := time.Until(c.bindAt); d > 0 {
		time.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.bindAll()
		})
	}
}

func (s *Store) bindAll() { s.unbound = slices.DeleteFunc(s.unbound, s.bind) }

// tellEvery is how often positions are told at most.
const tellEvery = time.Second

// tell tells the positions that are worth telling.
func (s *Store) tell(now time.Time) {
	if now.Sub(s.toldAt) < tellEvery {
		return
	}
	s.toldAt = now
	s.machine.queue.Positions(func(t *queue.Ticket, position int) {
		if c := s.callOf(t); c != nil && c.told > 0 && worthTelling(c.told, position) {
			c.tell(position)
		}
	})
}

// tell puts a position where wait finds it.
func (c *call) tell(position int) {
	if c.move == nil {
		return
	}
	select {
	case <-c.move: // was not told yet and is outdated
	default:
	}
	c.told = position
	c.move <- position
}

// worthTelling reports whether a position has changed by a tenth, or at all
// where it is below ten.
func worthTelling(told, position int) bool {
	return 10*max(told-position, position-told) >= max(told, 10)
}

// callOf returns the call of a ticket, or nil if it is not one of this process.
func (s *Store) callOf(t *queue.Ticket) *call {
	if c := s.calls[name{t.ID(), t.Attempt()}]; c != nil && c.ticket == t {
		return c
	}
	return nil
}

// inOrder returns all calls, those that run first, the others as they came.
func (s *Store) inOrder() []*call {
	calls := make([]*call, 0, len(s.calls))
	for _, c := range s.calls {
		calls = append(calls, c)
	}
	slices.SortFunc(calls, compareCalls)
	return calls
}

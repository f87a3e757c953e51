package postgres

import (
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A hand is a command: a lease ends, and another request of the same replica runs
// on what it held. After is the last entry that the replica had read when it let
// that happen.
type hand struct {
	release
	To    name
	On    int // the index of the candidate
	After int64
}

// freshFor is how long after it has read the log a replica hands over, by its own
// clock: who was in the log before that was read.
const freshFor = 25 * time.Millisecond

// A line counts the calls that have asked the log and have no answer.
type line struct {
	byPriority map[int]int
	early      map[int]int // those of them that may come before others who wait
}

// count counts n more calls like c.
func (l *line) count(c *call, early bool, n int) {
	if l.byPriority == nil {
		l.byPriority, l.early = make(map[int]int), make(map[int]int)
	}
	add(l.byPriority, c.record.Priority, n)
	if early {
		add(l.early, c.record.Priority, n)
	}
}

// add adds n to a counter, which is not there if it is 0.
func add[K comparable](counts map[K]int, key K, n int) {
	counts[key] += n
	if counts[key] == 0 {
		delete(counts, key)
	}
}

// mayPrecede reports whether one of the calls may come before c, which waits.
func (l *line) mayPrecede(c *call) bool {
	for priority := range l.byPriority {
		if priority > c.record.Priority {
			return true
		}
	}
	return l.early[c.record.Priority] > 0
}

// handOver lets the call that waits longest for what c holds run at once on it, if
// that is one of this process, and reports whether it did. The log hears of it with
// the next step.
func (s *Store) handOver(c *call, tokens *int64) bool {
	if s.waiting == 0 || !s.believes() || time.Since(s.readAt) > freshFor || !s.holds(c) {
		return false
	}
	var ids []string
	for _, scope := range c.held() {
		if lendable(scope.Kind, scope.Window) {
			ids = append(ids, scope.ID)
		}
	}
	t, candidate := s.machine.queue.Heir(ids, s.freed, s.gone)
	if t == nil {
		return false
	}
	heir := s.callOf(t)
	if heir == nil || heir.record.NoWait || heir.record.Priority < 0 || s.line.mayPrecede(heir) {
		return false
	}
	s.end(c, nil)
	s.start(heir, candidate)
	s.send(request{command: command{Hand: &hand{
		release: release{name: c.name(), Tokens: tokens}, To: heir.name(), On: candidate, After: s.machine.seq,
	}}})
	return true
}

// holds reports whether the log knows, or will know before it hears of anything
// that is sent now, that c runs.
func (s *Store) holds(c *call) bool {
	return c.credits == nil && c.ticket != nil && s.machine.owners[c.ticket] == s.id
}

// gone reports whether a ticket that waits, as far as the log was read, is one of
// this process that runs or has left.
func (s *Store) gone(t *queue.Ticket) bool {
	if s.machine.owners[t] != s.id {
		return false
	}
	c := s.callOf(t)
	return c == nil || c.state != waiting
}

// freed yields the scopes of which the log will hear that something is free.
func (s *Store) freed(yield func(string) bool) {
	for id := range s.freeing {
		if !yield(id) {
			return
		}
	}
}

// free notes that n more commands about c will free what it holds or waits for.
func (s *Store) free(c *call, n int) {
	for id := range c.record.Loans() {
		add(s.freeing, id, n)
	}
}

func (m *machine) hand(e entry, h *hand) (result, []*queue.Ticket) {
	from, to := m.find(e, h.name), m.find(e, h.To)
	switch {
	case from == nil:
		return result{}, nil
	case to == nil || !from.Running():
		return result{}, m.drop(from, h.usage())
	}
	delete(m.owners, from)
	return result{}, m.queue.Hand(m.at, from, h.usage(), to, h.On)
}

// drop ends a ticket, whether it runs or waits.
func (m *machine) drop(t *queue.Ticket, usage *policy.Usage) []*queue.Ticket {
	if t.Running() {
		return m.release(t, usage)
	}
	return m.forget(t)
}

package postgres

import (
	"slices"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// The times of credits.
const (
	// quietFor is how long nobody must have waited for what a lease held before
	// this process keeps it for its next request.
	quietFor = time.Second
	// reviewEvery is how long a credit may be more than was ever in use at once
	// before the rest goes back.
	reviewEvery = 10 * time.Second
	// believeFor is how long after its last step a replica relies on its lease,
	// by its own clock. After any step, a lease lasts 0.7 of its length at least.
	believeFor = lease / 2
	// recallWithin is how long a request that may not wait waits for others to
	// return what they do not use.
	recallWithin = time.Second
)

// A credit is what this replica was lent of a concurrency scope. Of what is not in
// use, requests may start at once, without asking anybody, while the log, as far
// as it was read, knows of nobody who waits for the scope.
type credit struct {
	scope string // its ID
	size  int64  // what was lent and is not on its way back
	used  int64  // by calls that run
	idle  int64  // the least that was not in use since the last review

	// asking counts the calls that have asked the log for a part of the scope, and
	// have no answer. Nobody may start on the credit meanwhile, who came later.
	asking int

	back int64 // what goes back with the next step
	owes bool  // it is in credits.owing
}

// Credits are what this replica was lent, by scope.
type credits struct {
	of       map[string]*credit
	owing    []*credit // with something to return or an answer to give
	reviewed time.Time
	quiet    time.Duration // quietFor, but in tests
}

// get returns the credit of a scope, which is new if there is none.
func (k *credits) get(scope string) *credit {
	c, ok := k.of[scope]
	if !ok {
		if k.of == nil {
			k.of = make(map[string]*credit)
		}
		c = &credit{scope: scope}
		k.of[scope] = c
	}
	return c
}

// owe notes that c has something to return, or to answer.
func (k *credits) owe(c *credit) {
	if !c.owes {
		c.owes = true
		k.owing = append(k.owing, c)
	}
}

// giveBack returns n of c.
func (k *credits) giveBack(c *credit, n int64) {
	c.size -= n
	c.back += n
	c.idle = min(c.idle, c.free())
	k.owe(c)
}

// tidy forgets c if it is nothing.
func (k *credits) tidy(c *credit) {
	if c.size == 0 && c.asking == 0 && !c.owes {
		delete(k.of, c.scope)
	}
}

// free returns how much of c is not in use.
func (c *credit) free() int64 { return c.size - c.used }

// maxLoans is how many loans go back with one step.
const maxLoans = 1024

// due returns what goes back with the next step, and the answers to give.
func (k *credits) due() []queue.Loan {
	n := min(len(k.owing), maxLoans)
	loans := make([]queue.Loan, n)
	for i, c := range k.owing[:n] {
		loans[i] = queue.Loan{Scope: c.scope, N: c.back}
		c.back, c.owes = 0, false
		k.tidy(c)
	}
	k.owing = slices.Delete(k.owing, 0, n)
	return loans
}

// review returns what was not in use at any time since the last one.
func (k *credits) review(now time.Time) {
	if now.Sub(k.reviewed) < reviewEvery {
		return
	}
	k.reviewed = now
	for _, c := range k.of {
		if c.idle > 0 {
			k.giveBack(c, c.idle)
		}
		c.idle = c.free()
	}
}

// believes reports whether this replica may rely on its lease.
func (s *Store) believes() bool { return s.machine != nil && time.Now().Before(s.believeUntil) }

// spend lets c run at once on credits for all its scopes and for those of its best
// candidate, or reports that it cannot.
func (s *Store) spend(c *call, req *policy.AdmitRequest) bool {
	if !s.believes() {
		return false
	}
	c.credits = c.inline[:0]
	if !s.spare(c, req.Request.Scopes) || !s.spare(c, req.Candidates[0].Scopes) {
		c.credits = nil
		return false
	}
	for _, k := range c.credits {
		k.used++
		k.idle = min(k.idle, k.free())
	}
	c.state, c.on = running, c.record.Candidates[0]
	return true
}

// spare adds the credits for scopes to those of c, or reports that one has none.
func (s *Store) spare(c *call, scopes []policy.Scope) bool {
	for i := range scopes {
		k := s.credits.of[scopes[i].ID]
		if k == nil || k.free() <= 0 || k.asking > 0 || !lendable(scopes[i].Kind, scopes[i].Window) || !s.machine.queue.Spare(&scopes[i]) {
			return false
		}
		if !slices.Contains(c.credits, k) {
			c.credits = append(c.credits, k)
		}
	}
	return true
}

// lendable reports whether a scope may be lent. What was taken of a window comes
// back by time alone, so there is nothing to use again.
func lendable(kind policy.ScopeKind, window time.Duration) bool {
	return kind == policy.ScopeConcurrency && window == 0
}

// repay ends the use of the credits of c. What others wait for goes back.
func (s *Store) repay(c *call) {
	for _, k := range c.credits {
		k.used--
		if s.machine.queue.Claimed(k.scope) {
			s.giveBack(k, 1)
		}
	}
	c.credits = nil
}

// giveBack returns n of k soon.
func (s *Store) giveBack(k *credit, n int64) {
	s.credits.giveBack(k, n)
	s.pressLocked()
	s.kick()
}

// answer returns what is not in use of a scope that others wait for, or says that
// all of it is.
func (s *Store) answer(scope string) {
	if k := s.credits.of[scope]; k != nil {
		s.giveBack(k, k.free())
	}
}

// asks notes that c is going to ask the log for whatever it may need. It asks like
// everybody else: one of everything that this replica has goes back before. What
// it has not is kept from those who come later, until c has an answer.
func (s *Store) asks(c *call) {
	for scope := range c.record.Loans() {
		k := s.credits.get(scope)
		if !slices.Contains(c.asked, k) {
			c.asked = append(c.asked, k)
			k.asking++
		}
	}
	s.bring(c)
	c.undecided, c.early = true, c.place > 0 || c.record.Arrival <= s.places.last()
	s.line.count(c, c.early, 1)
}

// bring returns one of everything that c asks for, where that is possible.
func (s *Store) bring(c *call) {
	c.asked = slices.DeleteFunc(c.asked, func(k *credit) bool {
		if k.free() <= 0 {
			return false
		}
		k.asking--
		s.credits.giveBack(k, 1)
		return true
	})
}

// answered notes that c has its answer, or does not need one any more.
func (s *Store) answered(c *call) {
	for _, k := range c.asked {
		k.asking--
		s.credits.tidy(k)
	}
	c.asked = nil
	if c.undecided {
		c.undecided = false
		s.line.count(c, c.early, -1)
	}
}

// keeps reports whether what c held may be kept for the next request.
func (s *Store) keeps(c *call) bool {
	if !s.believes() {
		return false
	}
	quietSince := time.Now().Add(s.offset - s.credits.quiet)
	scopes := c.held()
	for i := range scopes {
		if !lendable(scopes[i].Kind, scopes[i].Window) || !s.machine.queue.Quiet(scopes[i].ID, quietSince) {
			return false
		}
	}
	return len(scopes) > 0
}

// kept notes that what c held was kept.
func (s *Store) kept(c *call) {
	var seen []*credit
	for _, r := range c.held() {
		k := s.credits.get(r.ID)
		if slices.Contains(seen, k) {
			continue
		}
		seen = append(seen, k)
		k.size++
		if s.machine.queue.Claimed(k.scope) {
			s.giveBack(k, k.free())
		}
	}
}

// loseCredits forgets all credits: the log has ended the loans. What runs on them
// is to be brought back.
func (s *Store) loseCredits() {
	s.credits.of, s.credits.owing, s.line = nil, nil, line{}
	clear(s.freeing)
	for _, c := range s.calls {
		c.sent = c.sent || c.credits != nil
		c.credits, c.asked, c.ticket, c.undecided = nil, nil, nil, false
	}
}

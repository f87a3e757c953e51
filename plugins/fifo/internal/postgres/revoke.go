package postgres

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

const (
	// standFor is how long after its last step a replica that hears nothing of
	// the database stands for what it runs, by its own clock. The lease lasts 0.7
	// of its length at least: the rest is for those who have to end.
	standFor = lease * 7 / 12
	// resumeTries is how often a replica whose lease has ended tries to join
	// before it gives up what it runs.
	resumeTries = 4
)

// resume returns the command by which c, which runs, asks whether it may go on,
// after others have taken this replica for dead. What cannot be revoked runs in any
// case, and is to be counted.
func (c *call) resume() request {
	r := c.record
	r.Candidates = []queue.CandidateRecord{c.on}
	if c.revoke == nil {
		return request{command: command{Run: &r}, call: c}
	}
	return request{command: command{Resume: &r}, call: c}
}

// revokeCall ends c, which runs and must not.
func (s *Store) revokeCall(c *call) {
	s.end(c, nil)
	c.revoke(policy.ReasonStoreUnavailable)
}

// standsUntil returns until when this replica stands for what it runs, whatever
// becomes of the database.
func (s *Store) standsUntil() time.Time { return s.readAt.Add(standFor) }

// doubt looks at the error of a turn. If nothing was heard of the database for so
// long that others may take this replica for dead, what it runs is revoked before
// they do. A database that is not running, or that answers with an error, is so for
// others, too: nobody is taken for dead.
func (l *loop) doubt(err error) {
	switch {
	case l.machine != nil && silent(err) && !time.Now().Before(l.standsUntil()):
	case l.machine == nil && l.fenced && l.tries >= resumeTries:
	default:
		return
	}
	for _, c := range l.calls {
		if c.state == running && c.revoke != nil {
			c.revoke(policy.ReasonStoreUnavailable) // it is released as ever
		}
	}
}

// silent reports whether err says that nothing was heard of the database.
func silent(err error) bool {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout() || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

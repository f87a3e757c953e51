package host

import (
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// A leaseKey names a lease, or the wait for one.
type leaseKey struct {
	instance string
	ticket   Ticket
}

// expect lets f be called when the lease is revoked, if f is not nil. It comes
// before the question, because the revocation may come before the answer.
func (c *Client) expect(instance string, t Ticket, f func(policy.Reason)) {
	if f == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revokes[leaseKey{instance, t}] = f
}

// answered expects nothing any more of a question that came to no lease.
func (c *Client) answered(instance string, t Ticket, a *Admission, err error) {
	if err != nil || a == nil || !a.Waiting && a.Candidate == "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.revokes, leaseKey{instance, t})
	}
}

// revoked tells the holder of a lease that it is revoked.
func (c *Client) revoked(r *policypb.Revoked) {
	t := Ticket{ID: r.GetTicket().GetId(), Attempt: int(r.GetTicket().GetAttempt())}
	c.mu.Lock()
	f := c.revokes[leaseKey{r.GetInstance(), t}]
	c.mu.Unlock()
	if f != nil {
		f(wire.ReasonFromProto(r.GetReason()))
	}
}

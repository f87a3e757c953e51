package pluginhost

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// Decide asks the policies of the plugin about one request. A process has the
// time of timeout to answer. While the process is being restarted Decide waits,
// as long as ctx allows; but if it cannot be restarted, it returns an error at
// once: the breaker is open. An admission that waits
// is collected by [Instance.Admit], or ended by [Instance.Cancel]; one that was
// granted is ended by [Instance.Release]. If Decide returns an error, there is
// nothing to end.
func (p *Plugin) Decide(ctx context.Context, timeout time.Duration, req *host.DecideRequest) (*host.Decision, error) {
	var d *host.Decision
	asked := false
	err := p.ask(ctx, p.unlessDeadly("decide", func(process *process) (err error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		asked = true
		if d, err = process.Decide(ctx, req); err == nil && d.Admission != nil {
			p.settle(req.Admit, host.Held{
				Request: req.Request, Attempt: req.Attempt, Revoke: req.Revoke, Catalog: req.Catalog, Candidates: req.Candidates,
			}, d.Admission)
		}
		return err
	}))
	if err != nil {
		if asked && req.Admit != "" { // it may have been admitted without our knowing
			p.cancel(req.Admit, host.Ticket{ID: req.Request.ID, Attempt: req.Attempt})
		}
		return nil, fmt.Errorf("ask plugin %s: %w", p.spec.Name, err)
	}
	return d, nil
}

// Admit asks for an admission, or collects one that waits, and blocks until it
// is settled. It outlives restarts of the process without losing the place in
// line. Each new position is told to waiting. If it returns an error, there is
// nothing to end.
func (in *Instance) Admit(ctx context.Context, req host.AdmitRequest, waiting func(position int)) (*host.Admission, error) {
	req.Instance = in.name
	held := host.Held{Request: req.Request, Attempt: req.Attempt, Revoke: req.Revoke, Catalog: req.Catalog, Candidates: req.Candidates}
	var settled *host.Admission
	err := in.plugin.call(ctx, func(process *process) error {
		a, err := process.Wait(ctx, &req, func(a *host.Admission) {
			in.plugin.settle(in.name, held, a)
			if req.SeenPosition != a.Position && a.Position > 0 {
				waiting(a.Position)
			}
			req.SeenPosition = a.Position
		})
		if err == nil {
			in.plugin.settle(in.name, held, a)
			settled = a
		}
		return err
	})
	if err != nil {
		in.Cancel(req.Request.ID, req.Attempt)
		return nil, fmt.Errorf("wait for plugin %s: %w", in.plugin.spec.Name, err)
	}
	return settled, nil
}

// settle writes an admission into the ledger. A lease on a candidate that was
// not offered is given back, and is an error of the plugin.
func (p *Plugin) settle(instance string, held host.Held, a *host.Admission) {
	offered := func(c policy.Candidate) bool { return c.ID == a.Candidate }
	if a.Candidate != "" && !slices.ContainsFunc(held.Candidates, offered) {
		p.cancel(instance, host.Ticket{ID: held.Request.ID, Attempt: held.Attempt})
		*a = host.Admission{Err: fmt.Errorf("lease on candidate %q, which was not offered", a.Candidate)}
	}
	p.ledger.record(instance, held, a)
}

// Cancel ends a wait that nobody waits for any more.
func (in *Instance) Cancel(requestID string, attempt int) {
	in.plugin.cancel(in.name, host.Ticket{ID: requestID, Attempt: attempt})
}

func (p *Plugin) cancel(instance string, ticket host.Ticket) {
	p.ledger.forget(instance, ticket)
	p.journal.post(func(b *batch) { b.Cancels = append(b.Cancels, host.Cancel{Instance: instance, Ticket: ticket}) })
}

// Release ends a lease. It does not block; the returned channel is closed when
// the plugin has acknowledged it.
func (in *Instance) Release(requestID string, attempt int, out policy.Outcome, span trace.SpanContext) <-chan struct{} {
	return in.plugin.journal.post(func(b *batch) {
		b.Releases = append(b.Releases, host.Release{
			Instance: in.name, Ticket: host.Ticket{ID: requestID, Attempt: attempt}, Outcome: out, Span: span,
		})
	})
}

// Observe tells instances of the plugin how an attempt ended, a success a moment
// later. It does not block; the returned channel is closed when the plugin has
// acknowledged it.
func (p *Plugin) Observe(instances []string, o host.Observation) <-chan struct{} {
	o.Instances = instances
	if o.Result.Disposition == policy.OK {
		return p.journal.postLater(func(b *batch) { b.observe(o) })
	}
	return p.journal.post(func(b *batch) { b.observe(o) })
}

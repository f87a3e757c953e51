package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// A Report tells a process what has happened. Observations come first, so that
// a candidate that is freed is judged by what it just did.
type Report struct {
	Observations []Observation
	Releases     []Release
	Cancels      []Cancel

	told *session // which has heard, or will hear, of the observations
}

// Len returns the number of entries.
func (r *Report) Len() int { return len(r.Observations) + len(r.Releases) + len(r.Cancels) }

// An Observation is one result for the instances that want to hear it.
type Observation struct {
	Instances []string
	Catalog   *Catalog
	Result    policy.AttemptResult
}

// A Release ends one lease.
type Release struct {
	// Instance is the one that gave the lease, and Ticket names it.
	Instance string
	Ticket   Ticket

	// Outcome tells how the request ended.
	Outcome policy.Outcome

	// Span is the span that the release belongs to, if any.
	Span trace.SpanContext
}

// A Cancel ends the wait of a ticket that nobody waits for any more, and
// releases it if it was admitted meanwhile.
type Cancel struct {
	Instance string
	Ticket   Ticket
}

// Report tells what r holds. What the process has acknowledged, or refused for
// good, is not left in r; what is left may be told again.
func (c *Client) Report(ctx context.Context, r *Report) error {
	c.forgetEnded(r)
	if c.session != nil {
		return c.reportOnSession(ctx, r)
	}
	var failed error
	for _, req := range observeRequests(r.Observations, &failed) {
		_, err := c.rpc.Observe(ctx, req)
		if again(err) {
			return err // and all of them again, of which one is told twice at worst
		}
		failed = cmp.Or(failed, err)
	}
	r.Observations = nil
	if len(r.Releases) > 0 {
		_, err := c.rpc.Release(ctx, releaseRequest(r.Releases))
		if again(err) {
			return err
		}
		r.Releases, failed = nil, cmp.Or(failed, err)
	}
	for _, req := range cancelRequests(r.Cancels) {
		_, err := c.rpc.Cancel(ctx, req)
		if again(err) {
			return err
		}
		failed = cmp.Or(failed, err)
	}
	r.Cancels = nil
	return failed
}

func (c *Client) forgetEnded(r *Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range r.Releases {
		delete(c.revokes, leaseKey{r.Releases[i].Instance, r.Releases[i].Ticket})
	}
	for _, x := range r.Cancels {
		delete(c.revokes, leaseKey{x.Instance, x.Ticket})
	}
}

// again reports whether a call may come to another end if it is made again.
func again(err error) bool {
	return TimedOut(err) || Unavailable(err) || status.Code(err) == codes.Canceled
}

func (c *Client) reportOnSession(ctx context.Context, r *Report) error {
	var failed error
	report := &policypb.Report{Cancel: cancelRequests(r.Cancels)}
	if r.told != c.session { // else it was slow to answer
		report.Observe = observeRequests(r.Observations, &failed)
		r.told = c.session
	}
	if len(r.Releases) > 0 {
		report.Release = releaseRequest(r.Releases)
	}
	_, err := c.session.call(ctx, &policypb.SessionCall{Report: report})
	if again(err) {
		return err
	}
	*r = Report{}
	return cmp.Or(failed, err)
}

// observeRequests translates observations, those for the same instances
// together. One that cannot be told is an error in failed.
func observeRequests(observations []Observation, failed *error) []*policypb.ObserveRequest {
	var reqs []*policypb.ObserveRequest
	for _, o := range observations {
		i, ok := o.Catalog.index[o.Result.Candidate.ID]
		if !ok {
			*failed = fmt.Errorf("observe candidate %q: not in catalog %s", o.Result.Candidate.ID, o.Catalog.Name)
			continue
		}
		result := wire.ResultToProto(o.Catalog.Name, i, o.Result)
		same := func(req *policypb.ObserveRequest) bool { return slices.Equal(req.GetInstances(), o.Instances) }
		if n := slices.IndexFunc(reqs, same); n >= 0 {
			reqs[n].Results = append(reqs[n].Results, result)
		} else {
			reqs = append(reqs, &policypb.ObserveRequest{Instances: o.Instances, Results: []*policypb.AttemptResult{result}})
		}
	}
	return reqs
}

func releaseRequest(releases []Release) *policypb.ReleaseRequest {
	req := &policypb.ReleaseRequest{Releases: make([]*policypb.LeaseRelease, len(releases))}
	for i, r := range releases {
		req.Releases[i] = &policypb.LeaseRelease{
			Instance: r.Instance, Ticket: r.Ticket.toProto(), Outcome: wire.OutcomeToProto(r.Outcome),
			Trace: traceContextOf(r.Span),
		}
	}
	return req
}

// cancelRequests translates cancels, those of an instance together.
func cancelRequests(cancels []Cancel) []*policypb.CancelRequest {
	var reqs []*policypb.CancelRequest
	for _, c := range cancels {
		same := func(req *policypb.CancelRequest) bool { return req.GetInstance() == c.Instance }
		n := slices.IndexFunc(reqs, same)
		if n < 0 {
			n, reqs = len(reqs), append(reqs, &policypb.CancelRequest{Instance: c.Instance})
		}
		reqs[n].Tickets = append(reqs[n].Tickets, c.Ticket.toProto())
	}
	return reqs
}

// Cancel ends the wait of tickets of one instance.
func (c *Client) Cancel(ctx context.Context, instance string, tickets ...Ticket) error {
	r := &Report{}
	for _, t := range tickets {
		r.Cancels = append(r.Cancels, Cancel{instance, t})
	}
	return c.Report(ctx, r)
}

// Release ends leases. It may be called again for the same ones.
func (c *Client) Release(ctx context.Context, releases []Release) error {
	return c.Report(ctx, &Report{Releases: releases})
}

// Observe tells instances how attempts ended.
func (c *Client) Observe(ctx context.Context, observations []Observation) error {
	return c.Report(ctx, &Report{Observations: observations})
}

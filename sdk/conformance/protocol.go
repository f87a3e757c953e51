package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// protocol returns the checks of what only a host can see of an admission:
// calls that are made twice, tickets that are parked, collected and cancelled.
// The SDK for Go keeps all of this by itself; a plugin in another language has
// to do it.
func (x Target) protocol() []Check {
	return []Check{
		{"an admission that is asked for again is the same", x.line((*desk).admitsTwice)},
		{"a lease is released once", x.line((*desk).releasesOnce)},
		{"what is not known is released and cancelled without an error", x.line((*desk).ignoresUnknownTickets)},
		{"an unknown catalog is FAILED_PRECONDITION", x.line((*desk).refusesUnknownCatalogs)},
		{"Decide parks, and Admit collects", x.line((*desk).parks)},
		{"the end of a call does not end the wait", x.line((*desk).outlivesCalls)},
		{"Cancel ends the wait", x.line((*desk).cancels)},
		{"Cancel releases what was admitted meanwhile", x.line((*desk).cancelsAdmitted)},
		{"it answers while many wait", x.line((*desk).answersWhileManyWait)},
		{"a drained instance rejects who waits", x.line((*desk).rejectsAtDrain)},
	}
}

// A desk asks one instance as a host does.
type desk struct {
	*world
	*host.Client
	name       string
	candidates []policy.Candidate
	catalog    *host.Catalog
	limit      int
	running    []host.Ticket // as many as may run
}

// line returns a check with a desk at an instance that is full.
func (x Target) line(check func(d *desk, t T)) func(T) {
	return func(t T) {
		client := x.Connect(t)
		_, name := x.instance(t, client)
		d := &desk{world: newWorld(), Client: client, name: name, candidates: []policy.Candidate{candidate("k1"), candidate("k2")}}
		d.catalog = send(t, client, d.candidates)
		for d.limit < unlimited {
			req := d.usual()
			a := d.decide(t, req, true)
			if a.Candidate == "" {
				break
			}
			d.running = append(d.running, ticketOf(req))
			d.limit++
		}
		if d.limit == unlimited {
			t.Skipf("needs a policy with a limit; %d requests run", d.limit)
		}
		check(d, t)
	}
}

func (d *desk) usual() *policy.Request { return d.request(d.scope("fleet", fleetLimit)) }

func ticketOf(r *policy.Request) host.Ticket { return host.Ticket{ID: r.ID, Attempt: 1} }

// decide asks for an admission and does not wait for it.
func (d *desk) decide(t T, req *policy.Request, noWait bool) *host.Admission {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	got, err := d.Decide(ctx, &host.DecideRequest{
		Request: req, Catalog: d.catalog, Candidates: d.candidates, Admit: d.name, Attempt: 1, NoWait: noWait,
	})
	if err != nil {
		t.Fatalf("Decide: %v", err)
	}
	if got.Admission == nil {
		t.Fatalf("Decide answered without an admission")
	}
	if got.Admission.Err != nil {
		t.Fatalf("Decide: the admission failed: %v", got.Admission.Err)
	}
	if noWait && got.Admission.Waiting { // it takes its time to answer
		a, err := d.collect(ctx, t, req, true)
		if err != nil {
			t.Fatalf("Admit with no_wait: %v", err)
		}
		return a
	}
	return got.Admission
}

// collect collects an admission.
func (d *desk) collect(ctx context.Context, t T, req *policy.Request, noWait bool) (*host.Admission, error) {
	t.Helper()
	ask := &host.AdmitRequest{Instance: d.name, Request: req, Attempt: 1, NoWait: noWait, Catalog: d.catalog, Candidates: d.candidates}
	for {
		a, err := d.Admit(ctx, ask)
		if err != nil || !a.Waiting {
			return a, err
		}
		if a.Position == ask.SeenPosition {
			t.Errorf("Admit answered that the request waits at position %d, which the host knew", a.Position)
		}
		ask.SeenPosition = a.Position
	}
}

// gets collects an admission that must be given.
func (d *desk) gets(t T, req *policy.Request, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	a, err := d.collect(ctx, t, req, false)
	if err != nil || a.Candidate == "" {
		t.Fatalf("Admit: %+v (%v); want a lease: %s", a, err, why)
	}
}

// end releases leases.
func (d *desk) end(t T, tickets ...host.Ticket) {
	t.Helper()
	var releases []host.Release
	for _, ticket := range tickets {
		releases = append(releases, host.Release{
			Instance: d.name, Ticket: ticket,
			Outcome: policy.Outcome{Disposition: policy.OK, Usage: &policy.Usage{InputTokens: 90, OutputTokens: 40}, Duration: time.Second},
		})
	}
	if err := d.Release(t.Context(), releases); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// hasRoomFor checks that exactly n more requests may start.
func (d *desk) hasRoomFor(t T, n int, why string) {
	t.Helper()
	var admitted []host.Ticket
	for range n + 1 {
		req := d.usual()
		if a := d.decide(t, req, true); a.Candidate != "" {
			admitted = append(admitted, ticketOf(req))
		}
	}
	if len(admitted) != n {
		t.Fatalf("room for %d requests (of at most %d that were tried), want %d: %s", len(admitted), n+1, n, why)
	}
	d.end(t, admitted...)
}

func (d *desk) admitsTwice(t T) {
	d.end(t, d.running...)
	req := d.usual()
	first := d.decide(t, req, true)
	for range 3 {
		if again := d.decide(t, req, true); again.Candidate != first.Candidate {
			t.Errorf("the same admission is on %q, and then on %q", first.Candidate, again.Candidate)
		}
	}
	d.gets(t, req, "it has one already")
	d.hasRoomFor(t, d.limit-1, "one request runs, that asked five times")
}

func (d *desk) releasesOnce(t T) {
	d.end(t, d.running[0])
	d.end(t, d.running[0], d.running[0])
	d.hasRoomFor(t, 1, "one lease was released, three times")
}

func (d *desk) ignoresUnknownTickets(t T) {
	unknown := host.Ticket{ID: "unknown", Attempt: 1}
	d.end(t, unknown, host.Ticket{ID: d.running[0].ID, Attempt: 7})
	if err := d.Cancel(t.Context(), d.name, unknown); err != nil {
		t.Errorf("Cancel of an unknown ticket: %v", err)
	}
	d.hasRoomFor(t, 0, "no lease was released")
}

func (d *desk) refusesUnknownCatalogs(t T) {
	other, err := host.NewCatalog([]policy.Candidate{candidate("never sent " + d.world.name)})
	if err != nil {
		t.Fatalf("catalog: %v", err)
	}
	_, err = d.Decide(t.Context(), &host.DecideRequest{
		Request: d.usual(), Catalog: other, Candidates: other.Candidates, Admit: d.name, Attempt: 1, NoWait: true,
	})
	if !host.Unknown(err) {
		t.Errorf("Decide with a catalog that was not sent: %v; want FAILED_PRECONDITION", err)
	}
}

// park asks for an admission that has to wait.
func (d *desk) park(t T) *policy.Request {
	t.Helper()
	req := d.usual()
	if a := d.decide(t, req, false); !a.Waiting {
		t.Skipf("needs a policy that lets requests wait; it answered %+v", a)
	}
	return req
}

func (d *desk) parks(t T) {
	req := d.park(t)
	d.end(t, d.running[0])
	d.gets(t, req, "a lease was released")
	d.hasRoomFor(t, 0, "the place went to who waited")
}

func (d *desk) outlivesCalls(t T) {
	req := d.park(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if a, err := d.collect(ctx, t, req, false); err == nil {
		t.Fatalf("Admit: %+v, although there is no room", a)
	}
	d.end(t, d.running[0])
	d.gets(t, req, "it waited through the end of a call")
	d.hasRoomFor(t, 0, "the place went to who waited")
}

func (d *desk) cancels(t T) {
	req := d.park(t)
	for range 2 {
		if err := d.Cancel(t.Context(), d.name, ticketOf(req)); err != nil {
			t.Fatalf("Cancel: %v", err)
		}
	}
	d.end(t, d.running[0])
	d.hasRoomFor(t, 1, "nobody waits any more")
}

func (d *desk) cancelsAdmitted(t T) {
	req := d.park(t)
	d.end(t, d.running[0])
	d.gets(t, req, "a lease was released")
	if err := d.Cancel(t.Context(), d.name, ticketOf(req)); err != nil {
		t.Fatalf("Cancel: %v", err)
	}
	d.hasRoomFor(t, 1, "the one who got it was cancelled")
}

// answersWhileManyWait checks that calls that wait leave room for others: a
// host that gets no answer to GetInfo within a few seconds kills the process.
func (d *desk) answersWhileManyWait(t T) {
	const many = 200
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	var waiting []host.Ticket
	for range many {
		req := d.park(t)
		waiting = append(waiting, ticketOf(req))
		calls.Go(func() {
			if a, err := d.collect(ctx, t, req, false); err == nil && a.Candidate != "" {
				t.Errorf("Admit: a lease, although there is no room")
			}
		})
	}
	if err := d.Cancel(t.Context(), d.name, waiting[0]); err != nil {
		t.Errorf("Cancel while %d calls of Admit wait: %v", many, err)
	}
	limited, done := context.WithTimeout(t.Context(), probePatience)
	defer done()
	if _, err := d.Info(limited, "conformance"); err != nil {
		t.Errorf("GetInfo while %d calls of Admit wait: %v", many, err)
	}
	if err := d.Cancel(t.Context(), d.name, waiting...); err != nil {
		t.Errorf("Cancel: %v", err)
	}
	cancel()
	waitFor(t, &calls, "Admit after Cancel")
}

// probePatience is longer than a host has, for the sake of busy machines.
const probePatience = 10 * time.Second

func (d *desk) rejectsAtDrain(t T) {
	req := d.park(t)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		a, err := d.collect(ctx, t, req, false)
		if err == nil && a.Candidate == "" {
			err = context.Canceled
		}
		answered <- err
	}()
	if err := d.Drain(ctx, d.name); err != nil {
		t.Fatalf("Drain: %v", err)
	}
	if err := <-answered; err == nil {
		t.Errorf("a request that waited was admitted by an instance that was drained")
	}
	if ctx.Err() != nil {
		t.Errorf("a request that waits was not answered when its instance was drained")
	}
}

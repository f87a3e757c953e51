package sdk_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
)

// connectRestored serves a desk that was told of one running and two waiting
// requests.
func connectRestored(t *testing.T) (*line, *restorableDesk) {
	t.Helper()
	d := &restorableDesk{desk: newDesk()}
	l := connect(t, map[string]sdk.Policies{"desk": {Admission: d}})
	held := func(id string, candidates ...policy.Candidate) host.Held {
		return host.Held{Request: &policy.Request{ID: id}, Attempt: 1, Catalog: l.catalog, Candidates: candidates}
	}
	running := []host.Held{held("runs", l.catalog.Candidates[2])}
	waiting := []host.Held{held("first", l.catalog.Candidates[1:]...), held("second", l.catalog.Candidates[1:]...)}
	if err := l.Restore(t.Context(), "desk", running, waiting); err != nil {
		t.Fatal(err)
	}
	return l, d
}

func TestRestoreTellsWhatRunsAndWaits(t *testing.T) {
	t.Parallel()
	_, d := connectRestored(t)
	wantRunning := []policy.Held{{Request: &policy.Request{ID: "runs"}, Attempt: 1, Candidate: policy.Candidate{ID: "c"}}}
	d.running[0].Revoke(policy.ReasonPolicy) // it can be, and nobody asked to hear of it
	d.running[0].Revoke = nil
	if diff := cmp.Diff(wantRunning, d.running); diff != "" {
		t.Errorf("running (-want +got):\n%s", diff)
	}
	var wantWaiting []policy.AdmitRequest
	for _, id := range []string{"first", "second"} {
		wantWaiting = append(wantWaiting, policy.AdmitRequest{
			Request: &policy.Request{ID: id}, Attempt: 1, Candidates: []policy.Candidate{{ID: "b"}, {ID: "c"}},
		})
	}
	if diff := cmp.Diff(wantWaiting, d.waiting, cmpopts.IgnoreFields(policy.AdmitRequest{}, "Waiting")); diff != "" {
		t.Errorf("waiting (-want +got):\n%s", diff)
	}
}

func TestRestoredLeasesAreKnown(t *testing.T) {
	t.Parallel()
	l, d := connectRestored(t)
	if a := l.admit(l.ask("runs")); a.Candidate != "c" {
		t.Errorf("admission is %+v, want the lease on c", a)
	}
	d.noMore(t)
	l.release(host.Ticket{ID: "runs", Attempt: 1}, host.Ticket{ID: "runs", Attempt: 1})
	if got := receive(t, d.released, "release").ticket.ID; got != "runs" {
		t.Errorf("released %s, want runs", got)
	}
	d.noMore(t)
}

func TestRestoredTicketsAreAskedForAgainOrCancelled(t *testing.T) {
	t.Parallel()
	l, d := connectRestored(t)
	call := async(func() *host.Admission { return l.admit(l.ask("second")) })
	v := d.next(t)
	if v.req.Request.ID != "second" || v.ctx.Err() != nil {
		t.Errorf("asked for %s (%v), want second", v.req.Request.ID, v.ctx.Err())
	}
	v.admits(0)
	receive(t, call, "answer")

	l.cancel(host.Ticket{ID: "first", Attempt: 1}, host.Ticket{ID: "first", Attempt: 1})
	v = d.next(t)
	if v.req.Request.ID != "first" || v.ctx.Err() == nil {
		t.Errorf("asked for %s (%v), want first, in an ended context", v.req.Request.ID, v.ctx.Err())
	}
	d.noMore(t)
	l.release(host.Ticket{ID: "second", Attempt: 1})
	receive(t, d.released, "release")
}

// miscount restores fewer leases than run.
type miscount struct{ *desk }

func (miscount) Restore(context.Context, []policy.Held, []policy.AdmitRequest) ([]policy.Lease, error) {
	return nil, nil
}

func TestRestoreCanFail(t *testing.T) {
	t.Parallel()
	for name, admitter := range map[string]policy.Admitter{"not a restorer": newDesk(), "lost lease": miscount{newDesk()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := connect(t, map[string]sdk.Policies{"desk": {Admission: admitter}})
			running := []host.Held{{Request: &policy.Request{ID: "r"}, Attempt: 1, Catalog: l.catalog, Candidates: l.catalog.Candidates[:1]}}
			if err := l.Restore(t.Context(), "desk", running, nil); err == nil || host.Unknown(err) || host.Unavailable(err) {
				t.Errorf("restore: %v, want an error of the plugin", err)
			}
			running[0].Candidates = l.catalog.Candidates
			if err := l.Restore(t.Context(), "desk", running, nil); err == nil {
				t.Error("a request that runs on three candidates was restored")
			}
		})
	}
}

func TestDrainEndsAnInstance(t *testing.T) {
	t.Parallel()
	d := newDesk()
	var closed atomic.Int32
	l := connect(t, map[string]sdk.Policies{
		"desk": {Admission: d, Close: func(context.Context) error {
			closed.Add(1)
			if len(d.released) != 1 {
				t.Errorf("closed after %d releases, want 1", len(d.released))
			}
			return nil
		}},
		"other": {Selection: policy.FilterFunc(nil)},
	})
	l.park(d, "runs").admits(0)
	l.admit(l.ask("runs"))
	v := l.park(d, "waits")
	call := async(func() *host.Admission { return l.admit(l.ask("waits")) })
	v.req.Waiting(1)
	if a := receive(t, call, "position"); a.Position != 1 {
		t.Fatalf("admission is %+v, want one that waits at 1", a)
	}
	seen := l.ask("waits")
	seen.SeenPosition = 1
	errs := make(chan error, 1)
	call = async(func() *host.Admission {
		a, err := l.Admit(t.Context(), seen)
		errs <- err
		return a
	})
	for range 2 {
		if err := l.Drain(t.Context(), "desk"); err != nil {
			t.Fatalf("drain: %v", err)
		}
	}
	want := &policy.Rejection{Reason: policy.ReasonPluginUnavailable}
	if a, err := receive(t, call, "answer"), receive(t, errs, "error"); !host.Unknown(err) && !cmp.Equal(a.Rejection, want) {
		t.Errorf("admission is %+v (%v), want rejection %+v, or an unknown instance if the call came late", a, err, want)
	}
	if got := receive(t, d.released, "release"); got.ticket.ID != "runs" || got.out.Disposition != policy.Denied {
		t.Errorf("released %+v, want the lease of runs", got)
	}
	if n := closed.Load(); n != 1 {
		t.Errorf("closed %d times, want once", n)
	}
	if _, err := l.Admit(t.Context(), l.ask("late")); !host.Unknown(err) {
		t.Errorf("admit after drain: %v, want an unknown instance", err)
	}
	l.release(host.Ticket{ID: "runs", Attempt: 1}) // its lease ended with the instance
	d.noMore(t)
	l.decide(&host.DecideRequest{Request: &policy.Request{ID: "r"}, Catalog: l.catalog, Select: []string{"other"}})
}

func TestDrainWithoutANameEndsAllInstances(t *testing.T) {
	t.Parallel()
	var closed atomic.Int32
	p := sdk.Policies{Selection: policy.FilterFunc(nil), Close: func(context.Context) error { closed.Add(1); return nil }}
	l := connect(t, map[string]sdk.Policies{"one": p, "two": p})
	if err := l.Drain(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if n := closed.Load(); n != 2 {
		t.Errorf("closed %d instances, want 2", n)
	}
}

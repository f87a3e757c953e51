package sdk_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
)

// connectDesk serves a desk as the only policy.
func connectDesk(t *testing.T) (*line, *desk) {
	t.Helper()
	d := newDesk()
	return connect(t, map[string]sdk.Policies{"desk": {Admission: d}}), d
}

func TestAdmitGivesTheSameAnswerAgain(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	first := async(func() *host.Admission { return l.admit(l.ask("r1")) })
	v := d.next(t)
	second := async(func() *host.Admission { return l.admit(l.ask("r1")) })
	v.admits(1)
	for _, a := range []*host.Admission{receive(t, first, "answer"), receive(t, second, "answer"), l.admit(l.ask("r1"))} {
		if a.Candidate != "c" {
			t.Errorf("admission is %+v, want a lease on c", a)
		}
	}
	d.noMore(t)
	l.release(host.Ticket{ID: "r1", Attempt: 1})
	receive(t, d.released, "release")
}

func TestDecideParksWhatWaitsAndAdmitCollectsIt(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	v := l.park(d, "r1")
	answer := async(func() *host.Admission { return l.admit(l.ask("r1")) })
	v.admits(0)
	if a := receive(t, answer, "answer"); a.Candidate != "b" {
		t.Errorf("admission is %+v, want a lease on b", a)
	}
	d.noMore(t)
}

func TestDecideTellsThePosition(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	decision := async(func() *host.Decision {
		return l.decide(&host.DecideRequest{
			Request: &policy.Request{ID: "r1"}, Catalog: l.catalog, Candidates: l.catalog.Candidates, Admit: "desk", Attempt: 1,
		})
	})
	d.next(t).req.Waiting(7)
	a := receive(t, decision, "decision").Admission
	if !a.Waiting || a.Position != 7 && a.Position != 0 { // 0 if the machine was slow
		t.Errorf("admission is %+v, want one that waits at 7", a)
	}
}

func TestAdmitTellsEachPositionThatIsNew(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	v := l.park(d, "r1")
	req := l.ask("r1")
	for _, position := range []int{3, 2, 1, 4} { // it may move back, too
		answer := async(func() *host.Admission { return l.admit(req) })
		v.req.Waiting(req.SeenPosition) // is known
		v.req.Waiting(position)
		a := receive(t, answer, "position")
		if !a.Waiting || a.Position != position {
			t.Fatalf("admission is %+v, want one that waits at %d", a, position)
		}
		req.SeenPosition = position
	}
	v.req.Waiting(2) // between two calls
	if a := l.admit(req); !a.Waiting || a.Position != 2 {
		t.Errorf("admission is %+v, want one that waits at 2", a)
	}
	v.admits(0)
	req.SeenPosition = 2
	if a := l.admit(req); a.Candidate != "b" {
		t.Errorf("admission is %+v, want a lease on b", a)
	}
}

func TestTheEndOfACallDoesNotEndTheWait(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	v := l.park(d, "r1")
	ctx, cancel := context.WithCancel(t.Context())
	call := async(func() error {
		_, err := l.Admit(ctx, l.ask("r1"))
		return err
	})
	cancel()
	if err := receive(t, call, "the ended call"); err == nil {
		t.Error("a call that was ended returned an answer")
	}
	if v.ctx.Err() != nil {
		t.Error("the end of a call ended the wait")
	}
	v.admits(1)
	if a := l.admit(l.ask("r1")); a.Candidate != "c" {
		t.Errorf("admission is %+v, want a lease on c", a)
	}
	d.noMore(t)
}

func TestCancelEndsAWait(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	v1, v2 := l.park(d, "r1"), l.park(d, "r2")
	call := async(func() *host.Admission { return l.admit(l.ask("r1")) })
	l.cancel(host.Ticket{ID: "r1", Attempt: 1}, host.Ticket{ID: "r2", Attempt: 1}, host.Ticket{ID: "unknown", Attempt: 1})
	for _, v := range []*visit{v1, v2} {
		select {
		case <-v.left:
		default:
			t.Errorf("Cancel returned before Admit of %s did", v.req.Request.ID)
		}
	}
	select {
	case a := <-call:
		if a.Err == nil {
			t.Errorf("admission is %+v, want an error", a)
		}
	case v := <-d.visits: // the call came after the cancel, so it is a new one
		v.fails(errors.New("no"))
		receive(t, call, "answer")
	case <-time.After(patience):
		t.Error("a call was not answered when its ticket was cancelled")
	}
	d.noMore(t)
}

func TestCancelReleasesWhatWasAdmittedMeanwhile(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	l.park(d, "r1").admits(0)
	if a := l.admit(l.ask("r1")); a.Candidate != "b" {
		t.Fatalf("admission is %+v, want a lease on b", a)
	}
	l.cancel(host.Ticket{ID: "r1", Attempt: 1})
	want := released{host.Ticket{ID: "r1", Attempt: 1}, policy.Outcome{Disposition: policy.ClientGone}}
	if got := receive(t, d.released, "release"); got != want {
		t.Errorf("released %+v, want %+v", got, want)
	}
	l.cancel(host.Ticket{ID: "r1", Attempt: 1})
	d.noMore(t)
}

// slowToLeave admits requests whose callers have left.
type slowToLeave struct{ *desk }

func (s slowToLeave) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	s.visits <- &visit{desk: s.desk, ctx: ctx, req: req}
	<-ctx.Done()
	return s.lease(req.Request.ID, req.Attempt, 0), nil
}

func TestCancelReleasesWhatIsAdmittedAtTheSameMoment(t *testing.T) {
	t.Parallel()
	d := newDesk()
	l := connect(t, map[string]sdk.Policies{"desk": {Admission: slowToLeave{d}}})
	l.park(d, "r1")
	l.cancel(host.Ticket{ID: "r1", Attempt: 1})
	select {
	case <-d.released:
	default:
		t.Error("Cancel returned before the lease was released")
	}
}

func TestReleaseEndsALeaseOnce_B36(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	l.park(d, "r1").admits(0)
	l.admit(l.ask("r1"))
	ticket := host.Ticket{ID: "r1", Attempt: 1}
	l.release(host.Ticket{ID: "unknown", Attempt: 1}, ticket, host.Ticket{ID: "r1", Attempt: 2}, ticket)
	l.release(ticket)
	want := released{ticket, policy.Outcome{Disposition: policy.OK, Duration: time.Second}}
	if got := receive(t, d.released, "release"); got != want {
		t.Errorf("released %+v, want %+v", got, want)
	}
	d.noMore(t)
}

func TestALateReleaseOfAnAttemptLeavesTheNextOneAlone(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	first, second := l.ask("r1"), l.ask("r1")
	second.Attempt = 2
	for _, req := range []*host.AdmitRequest{first, second} {
		call := async(func() *host.Admission { return l.admit(req) })
		v := d.next(t)
		if v.req.Attempt != req.Attempt {
			t.Errorf("asked for attempt %d, want %d", v.req.Attempt, req.Attempt)
		}
		v.admits(0)
		receive(t, call, "answer")
		l.release(host.Ticket{ID: "r1", Attempt: 1})
	}
	if got := receive(t, d.released, "release").ticket.Attempt; got != 1 {
		t.Errorf("released attempt %d, want 1", got)
	}
	d.noMore(t)
	l.release(host.Ticket{ID: "r1", Attempt: 2})
	if got := receive(t, d.released, "release").ticket.Attempt; got != 2 {
		t.Errorf("released attempt %d, want 2", got)
	}
}

func TestReleaseOfAWaitEndsIt(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	v := l.park(d, "r1")
	l.release(host.Ticket{ID: "r1", Attempt: 1})
	receive(t, v.left, "end of the wait")
	d.noMore(t)
}

func TestARejectionIsToldOnce(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	want := &policy.Rejection{Reason: policy.ReasonQueueTimeout, RetryAfter: 3 * time.Second}
	v := l.park(d, "r1")
	v.fails(want) // between two calls
	if a := l.admit(l.ask("r1")); !cmp.Equal(a.Rejection, want) {
		t.Errorf("admission is %+v, want rejection %+v", a, want)
	}
	d.noMore(t)
	again := async(func() *host.Admission { return l.admit(l.ask("r1")) })
	d.next(t).admits(0)
	if a := receive(t, again, "answer"); a.Candidate != "b" {
		t.Errorf("admission is %+v, want a lease on b", a)
	}
}

func TestAnErrorIsToldOnce(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	v := l.park(d, "r1")
	v.fails(errors.New("caf\xe9"))
	if a := l.admit(l.ask("r1")); a.Err == nil || a.Err.Error() != "caf\uFFFD" {
		t.Errorf("admission is %+v, want the error of the policy", a)
	}
	call := async(func() *host.Admission { return l.admit(l.ask("r1")) })
	d.next(t).fails(errors.New("again"))
	if a := receive(t, call, "answer"); a.Err == nil || a.Err.Error() != "again" {
		t.Errorf("admission is %+v, want the second error of the policy", a)
	}
}

func TestWrongLeasesAreErrorsAndAreReleased(t *testing.T) {
	t.Parallel()
	for name, i := range map[string]int{"before the first": -1, "after the last": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, d := connectDesk(t)
			l.park(d, "r1").admits(i)
			if a := l.admit(l.ask("r1")); a.Err == nil || !strings.Contains(a.Err.Error(), "of 2") {
				t.Errorf("admission is %+v, want an error", a)
			}
			if got := receive(t, d.released, "release").out.Disposition; got != policy.Denied {
				t.Errorf("released with %s, want %s", got, policy.Denied)
			}
		})
	}
	t.Run("nil", func(t *testing.T) {
		t.Parallel()
		l, d := connectDesk(t)
		l.park(d, "r1").fails(nil)
		if a := l.admit(l.ask("r1")); a.Err == nil {
			t.Errorf("admission is %+v, want an error", a)
		}
	})
}

func TestNoWaitAndCandidatesReachThePolicy(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	req := l.ask("r1")
	req.NoWait, req.Attempt = true, 3
	req.Candidates = []policy.Candidate{{ID: "c", Load: policy.Load{InFlight: 4}}, {ID: "a"}}
	call := async(func() *host.Admission { return l.admit(req) })
	v := d.next(t)
	want := &policy.AdmitRequest{Request: req.Request, Attempt: 3, Candidates: req.Candidates, NoWait: true}
	v.req.Waiting, v.req.Revoke = nil, nil
	if diff := cmp.Diff(want, v.req); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	v.admits(1)
	if a := receive(t, call, "answer"); a.Candidate != "a" {
		t.Errorf("admission is %+v, want a lease on a", a)
	}
}

func TestARevokedLeaseEndsTheRequestOnce(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	revoked := make(chan policy.Reason, 10)
	revoke := func(why policy.Reason) { revoked <- why }
	decision := async(func() *host.Decision {
		return l.decide(&host.DecideRequest{
			Request: &policy.Request{ID: "r1"}, Catalog: l.catalog, Candidates: l.catalog.Candidates, Admit: "desk", Attempt: 1, Revoke: revoke,
		})
	})
	first := d.next(t)
	first.admits(0)
	receive(t, decision, "decision")
	first.req.Revoke(policy.ReasonStoreUnavailable)
	first.req.Revoke(policy.ReasonPolicy)
	if why := receive(t, revoked, "revocation"); why != policy.ReasonStoreUnavailable {
		t.Errorf("revoked for %s", why)
	}

	wait := async(func() *host.Admission {
		req := l.ask("r2")
		req.Revoke = revoke
		a, err := l.Wait(t.Context(), req, func(*host.Admission) {})
		if err != nil {
			t.Error(err)
		}
		return a
	})
	second := d.next(t)
	second.req.Revoke("no such reason") // while it waits
	if why := receive(t, revoked, "revocation"); why != policy.ReasonPolicy {
		t.Errorf("revoked for %s", why)
	}
	second.admits(0)
	receive(t, wait, "admission")

	third := l.park(d, "r3")
	l.release(host.Ticket{ID: "r1", Attempt: 1})
	first.req.Revoke(policy.ReasonPolicy)
	third.req.Revoke(policy.ReasonPolicy) // of which nobody wants to know
	l.release(host.Ticket{ID: "r2", Attempt: 1})
	if len(revoked) > 0 {
		t.Errorf("revoked again for %s", <-revoked)
	}
}

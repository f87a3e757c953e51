package caddymodule_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/plugins/keys"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// one lets a key serve one request at a time.
const one = "limit concurrency 1"

// expectMoved checks that a request waited for the candidate of one key and was
// served by that of another one.
func (st *site) expectMoved(r *reply, to string) {
	st.t.Helper()
	d := st.decision(r.id())
	first := d.Selections[0].Verdicts
	if !slices.ContainsFunc(first, func(v caddymodule.Verdict) bool { return v.Candidate == to && v.Verdict == policy.Skipped }) {
		st.t.Logf("the request came so late that %s served it at once", to)
		return
	}
	last := len(d.Admissions) - 1
	if r.StatusCode != http.StatusOK || last < 1 || !d.Admissions[last-1].Moved || !d.Admissions[last-1].Waited || d.Admissions[last].Candidate != to {
		st.t.Errorf("status %d, want 200 from %s after a wait that was left:\n%s", r.StatusCode, to, st.explain(r.id()))
	}
}

// A request waits for a busy key while another one rests. When the rest is
// over, that one serves it.
func TestWaitingRequestsMoveToAKeyWhoseRestIsOver(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()), limited("Retry-After", "1"), chats())
	st := serve(t, setup{usher: up.providerOf(key(1, one)+key(2, one)) + inOrder + model(up)})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request that holds the first key")
	failed := st.begin(chatBody) // rests the second key, and then waits for the first
	st.await(1, 1)
	waiter := st.begin(chatBody)
	st.expectMoved(after(t, waiter, "the request that waits"), up.name+"/k2/m")
	g.open()
	for _, r := range []*reply{after(t, holder, "holder"), after(t, failed, "the request that failed over")} {
		if r.StatusCode != http.StatusOK {
			t.Errorf("status %d:\n%s", r.StatusCode, st.explain(r.id()))
		}
	}
}

// An operator brings a key back, and those who wait for another one notice.
func TestWaitingRequestsMoveToAKeyThatIsPushedBack(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()), limited("Retry-After", "3000"), chats())
	st := serve(t, setup{usher: up.providerOf(key(1, one)+key(2, one)) + inOrder + model(up)})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request that holds the first key")
	failed := st.begin(chatBody)
	st.await(1, 1)
	waiter := st.begin(chatBody)
	st.await(1, 2)
	status, text := st.operate(http.MethodPost, "keys/clear", `{"provider":"`+up.name+`","key":"k2"}`)
	if status != http.StatusOK {
		t.Fatalf("clear: %d %s", status, text)
	}
	st.expectMoved(after(t, waiter, "the request that waits"), up.name+"/k2/m")
	g.open()
	after(t, holder, "holder")
	after(t, failed, "the request that failed over")
}

// The only key of those who wait begins to rest, but not for longer than they
// have time.
func TestWaitingRequestsOutwaitARest(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(limited("Retry-After", "1")), chats())
	st := serve(t, setup{usher: up.providerOf(key(1, one)) + model(up)})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request that holds the key")
	first, second := st.begin(chatBody), st.begin(chatBody)
	st.await(1, 2)
	g.open()
	if r := after(t, holder, "holder"); r.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d, want 429", r.StatusCode)
	}
	for _, c := range []<-chan *reply{first, second} {
		if r := after(t, c, "a request that waits"); r.StatusCode != http.StatusOK {
			t.Errorf("status %d:\n%s", r.StatusCode, st.explain(r.id()))
		}
	}
	up.expect(t, 3)
}

// overtaken are policies of which the one lets the second request wait for the first
// key, and admits it while the other finds that only the second key may serve it.
type overtaken struct {
	asked, judged atomic.Int64
	admit         chan struct{}
}

func (p *overtaken) Admit(_ context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	if p.asked.Add(1) == 2 {
		req.Waiting(1)
		<-p.admit
	}
	return policy.LeaseFunc(func(context.Context, policy.Outcome) error { return nil }), nil
}

func (p *overtaken) Select(_ context.Context, req *policy.SelectRequest) (s policy.Selection, err error) {
	n := p.judged.Add(1)
	if n == 3 { // the second request, while it waits
		close(p.admit)
		time.Sleep(200 * time.Millisecond) // until the answer has come
	}
	for _, c := range req.Candidates {
		if n >= 3 && c.Key == "k1" {
			s.Skip(c, policy.Why{Reason: policy.ReasonPolicy})
		} else {
			s.Add(c)
		}
	}
	return s, nil
}

// A request that waits gets a lease while it is judged anew: the lease is on one of
// those that were asked about, and is given back if that may not serve it any more.
func TestLeaseThatComesWithAChangeIsOnOneThatWasAskedAbout(t *testing.T) {
	p := &overtaken{admit: make(chan struct{})}
	define := func(name string, policies sdk.Policies) sdk.Definition {
		return sdk.Define(name, struct{}{}, func(context.Context, struct{}) (sdk.Policies, error) { return policies, nil })
	}
	g := newGate(t)
	up := newUpstream(t, g.then(answers(http.StatusUnauthorized, failure("", "invalid_api_key"))), chats())
	usher := up.providerOf(key(1)+key(2)) + model(up) + "attempts 1\n"
	st := serve(t, setup{usher: usher})
	alone := func() { // those that run in this process already would be used again
		eventually(t, func() error {
			if all := st.status(); slices.ContainsFunc(all, func(p pluginStatus) bool { return p.Name == "inline" }) {
				return fmt.Errorf("plugins %+v, want none in this process", all)
			}
			return nil
		})
	}
	alone()
	caddymodule.RegisterBuiltIn(define("keys", sdk.Policies{Selection: p}), define("fifo", sdk.Policies{Admission: p}))
	t.Cleanup(func() {
		caddymodule.RegisterBuiltIn(keys.New().Definition(), fifo.New().Definition())
		if err := st.load(setup{usher: usher}); err != nil {
			t.Error(err)
		}
		alone()
	})
	if err := st.load(setup{global: inline("keys", "fifo"), usher: usher}); err != nil {
		t.Fatal(err)
	}
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request whose key is refused")
	waiter := st.begin(chatBody)
	st.await(1, 1)
	g.open()
	after(t, holder, "holder")
	r := after(t, waiter, "the request that waits")
	if got, want := r.Header.Get("X-Usher-Candidate"), up.name+"/k2/m"; r.StatusCode != http.StatusOK || got != want {
		t.Errorf("status %d from %q, want 200 from %q:\n%s", r.StatusCode, got, want, st.explain(r.id()))
	}
}

// Who waits longer for a key than the request may take is refused at once.
func TestWaitingRequestsDoNotOutwaitTheirDeadline_B55(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(limited("Retry-After", "3000")), chats())
	st := serve(t, setup{usher: up.providerOf(key(1, one)) + model(up) + "timeout 1m\n"})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request that holds the key")
	waiter := st.begin(chatBody)
	st.await(1, 1)
	g.open()
	after(t, holder, "holder")
	r := after(t, waiter, "the request that waits")
	if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q; want 429:\n%s", r.StatusCode, r.Header.Get("Retry-After"), st.explain(r.id()))
	}
	// And a new one does not wait at all.
	r = st.ask(chatBody, http.StatusTooManyRequests)
	if after := r.Header.Get("Retry-After"); len(after) != 4 || !strings.HasPrefix(after, "2") && !strings.HasPrefix(after, "3") {
		t.Errorf("Retry-After %q, want what is left of 3000", after)
	}
	up.expect(t, 1)
}

// Whoever a change concerns is woken, the oldest first, and nobody else.
func TestChangesWakeThoseWhomTheyConcern(t *testing.T) {
	t.Parallel()
	candidate := func(provider, key, account string) policy.Candidate {
		return policy.Candidate{ID: provider + "/" + key, Provider: provider, Key: key, Account: account}
	}
	busy, resting, sibling := candidate("p", "k1", "p/k1"), candidate("p", "k2", "team"), candidate("q", "k2", "team")
	var ws caddymodule.Waiting
	waiters := make(map[int64]*caddymodule.Waiter)
	for _, arrival := range []int64{3, 1, 2} {
		waiters[arrival] = ws.Join(arrival)
	}
	ws.Judged(waiters[1], []policy.Candidate{busy}, []policy.Candidate{resting})
	ws.Judged(waiters[2], []policy.Candidate{busy}, nil)
	ws.Judged(waiters[3], nil, []policy.Candidate{resting})
	for _, c := range []struct {
		name        string
		candidate   policy.Candidate
		disposition policy.Disposition
		want        []int64
	}{
		{"a failure of what they wait for", busy, policy.Timeout, []int64{1, 2}},
		{"a limit", busy, policy.RateLimited, []int64{1, 2}},
		{"a success of what they wait for", busy, policy.OK, nil},
		{"a success of what is left out", resting, policy.OK, []int64{1, 3}},
		{"a success of the same account", sibling, policy.OK, []int64{1, 3}},
		{"a failure of what is left out", resting, policy.Timeout, nil},
		{"what says nothing", busy, policy.ClientGone, nil},
	} {
		res := &policy.AttemptResult{Candidate: c.candidate, Disposition: c.disposition}
		if got := ws.Concerned(res); got != (len(c.want) > 0) {
			t.Errorf("%s: concerns anybody: %t", c.name, got)
		}
		ws.Changed(res)
		ws.Changed(res) // wakes nobody twice
		if diff := cmp.Diff(c.want, ws.Woken()); diff != "" {
			t.Errorf("%s woke (-want +got):\n%s", c.name, diff)
		}
	}
	ws.Changed(nil)
	if diff := cmp.Diff([]int64{1, 2, 3}, ws.Woken()); diff != "" {
		t.Errorf("a command woke (-want +got):\n%s", diff)
	}
	ws.Leave(waiters[2])
	ws.Leave(waiters[2])
	ws.Changed(nil)
	if diff := cmp.Diff([]int64{1, 3}, ws.Woken()); diff != "" {
		t.Errorf("after one has left, a command woke (-want +got):\n%s", diff)
	}
	ws.Judged(waiters[1], []policy.Candidate{resting}, []policy.Candidate{busy})
	ws.Leave(waiters[3])
	for _, c := range []struct {
		candidate   policy.Candidate
		disposition policy.Disposition
		want        bool
	}{{busy, policy.OK, true}, {resting, policy.Timeout, true}, {busy, policy.Timeout, false}, {resting, policy.OK, false}} {
		if got := ws.Concerned(&policy.AttemptResult{Candidate: c.candidate, Disposition: c.disposition}); got != c.want {
			t.Errorf("%s of %s concerns anybody: %t, want %t", c.disposition, c.candidate.ID, got, c.want)
		}
	}
	ws.Leave(waiters[1])
	if n := ws.Subjects(); n != 0 {
		t.Errorf("%d subjects are left of nobody", n)
	}
}

// Many are woken one after the other, and all within a second.
func TestChangesDoNotWakeAllAtOnce(t *testing.T) {
	t.Parallel()
	var ws caddymodule.Waiting
	for i := range int64(3000) {
		ws.Join(i)
	}
	ws.Changed(nil)
	due := ws.Due()
	if !slices.IsSortedFunc(due, time.Time.Compare) || due[999].Sub(due[0]) < 900*time.Millisecond || due[2999].Sub(due[0]) > 2*time.Second {
		t.Errorf("woken %s and %s after the first", due[999].Sub(due[0]), due[2999].Sub(due[0]))
	}
}

// Requests come and go while things change.
func TestWaitingIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	var ws caddymodule.Waiting
	c := policy.Candidate{ID: "p/k", Provider: "p", Key: "k"}
	var wg sync.WaitGroup
	for i := range int64(8) {
		wg.Go(func() {
			for n := range int64(100) {
				w := ws.Join(n*8 + i)
				ws.Judged(w, []policy.Candidate{c}, nil)
				ws.Changed(&policy.AttemptResult{Candidate: c, Disposition: policy.Timeout})
				ws.Leave(w)
			}
		})
	}
	wg.Wait()
	ws.Changed(nil)
	if woken := ws.Woken(); len(woken) > 0 {
		t.Errorf("%d are left", len(woken))
	}
}

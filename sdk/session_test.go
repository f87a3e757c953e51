package sdk_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
	"github.com/usherproxy/usher/sdk/policytest"
)

// A policy that thinks for long must not hold up what others are asked.
func TestASlowPolicyHoldsUpNoOtherCall(t *testing.T) {
	t.Parallel()
	const many = 200
	asked, goOn := make(chan string, many), make(chan struct{})
	l := connect(t, map[string]sdk.Policies{
		"slow": {Selection: selectFunc(func(_ context.Context, req *policy.SelectRequest) (sel policy.Selection, err error) {
			asked <- req.Request.ID
			<-goOn
			return sel, nil
		})},
		"quick": {Selection: selectFunc(func(_ context.Context, req *policy.SelectRequest) (sel policy.Selection, err error) {
			sel.Add(req.Candidates[0])
			return sel, nil
		})},
	})
	ask := func(name, id string) *host.Decision {
		return l.decide(&host.DecideRequest{
			Request: &policy.Request{ID: id}, Catalog: l.catalog, Candidates: l.catalog.Candidates, Select: []string{name},
		})
	}
	var slow []<-chan *host.Decision
	for i := range many {
		slow = append(slow, async(func() *host.Decision { return ask("slow", fmt.Sprint(i)) }))
	}
	for range many {
		receive(t, asked, "a question to the slow policy")
	}
	if d := ask("quick", "q"); len(d.Selections) != 1 || len(d.Selections[0].Verdicts) != 1 {
		t.Errorf("decision is %+v", d)
	}
	if err := l.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	close(goOn)
	for _, d := range slow {
		receive(t, d, "answer of the slow policy")
	}
}

// Whoever waits is told of each move without asking again.
func TestMovesArePushed(t *testing.T) {
	t.Parallel()
	l, d := connectDesk(t)
	v := l.park(d, "r1")
	moves := make(chan int, 10)
	answer := async(func() *host.Admission {
		a, err := l.Wait(t.Context(), l.ask("r1"), func(a *host.Admission) { moves <- a.Position })
		if err != nil {
			t.Error(err)
		}
		return a
	})
	for _, position := range []int{3, 2, 5} {
		v.req.Waiting(position)
		if got := receive(t, moves, "move"); got != position {
			t.Errorf("moved to %d, want %d", got, position)
		}
	}
	v.admits(1)
	if a := receive(t, answer, "answer"); a.Candidate != "c" {
		t.Errorf("admission is %+v, want a lease on c", a)
	}
	d.noMore(t)
}

// A call that nobody waits for any more ends in the plugin, too.
func TestAnAbandonedCallEnds(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}), make(chan struct{})
	l := connect(t, map[string]sdk.Policies{"selects": {Selection: selectFunc(func(ctx context.Context, _ *policy.SelectRequest) (policy.Selection, error) {
		close(began)
		<-ctx.Done()
		close(ended)
		return policy.Selection{}, nil
	})}})
	ctx, cancel := context.WithCancel(t.Context())
	call := async(func() error {
		_, err := l.Decide(ctx, &host.DecideRequest{
			Request: &policy.Request{ID: "r"}, Catalog: l.catalog, Candidates: l.catalog.Candidates, Select: []string{"selects"},
		})
		return err
	})
	receive(t, began, "the question")
	cancel()
	if err := receive(t, call, "the ended call"); err == nil {
		t.Error("a call that was ended returned an answer")
	}
	receive(t, ended, "the end in the plugin")
}

// A large body does not keep the calls that are sent with it from arriving.
func TestManyCallsAtOnceArrive(t *testing.T) {
	t.Parallel()
	l := connect(t, map[string]sdk.Policies{"echo": {Selection: selectFunc(func(_ context.Context, req *policy.SelectRequest) (sel policy.Selection, err error) {
		for _, c := range slices.Backward(req.Candidates) {
			sel.Skip(c, policy.Why{Reason: policy.ReasonPolicy, Detail: req.Request.ID, Observed: float64(len(req.Request.Body))})
		}
		return sel, nil
	})}})
	var answers []<-chan *host.Decision
	for i := range 500 {
		answers = append(answers, async(func() *host.Decision {
			return l.decide(&host.DecideRequest{
				Request: &policy.Request{ID: fmt.Sprint(i), Body: make([]byte, i%7*100_000)},
				Catalog: l.catalog, Candidates: l.catalog.Candidates, Select: []string{"echo"},
			})
		}))
	}
	for i, answer := range answers {
		d := receive(t, answer, "answer")
		want := policy.Verdict{Candidate: "c", Status: policy.Skipped, Why: policy.Why{Reason: policy.ReasonPolicy, Detail: fmt.Sprint(i), Observed: float64(i % 7 * 100_000)}}
		if len(d.Selections) != 1 || len(d.Selections[0].Verdicts) != 3 || d.Selections[0].Verdicts[0] != want {
			t.Fatalf("answer %d is %+v", i, d)
		}
	}
}

// A policy sees until when its answer is waited for, however it is asked.
func TestPoliciesSeeTheDeadline(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(testing.TB, ...sdk.Definition) *host.Client{
		"frames": policytest.Connect, "stream": policytest.ConnectStream, "unary": policytest.ConnectUnary,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := make(chan time.Time, 1)
			client := connect(t, define("one", sdk.Policies{Selection: selectFunc(func(ctx context.Context, _ *policy.SelectRequest) (sel policy.Selection, err error) {
				deadline, _ := ctx.Deadline()
				seen <- deadline
				return sel, nil
			})}))
			kinds, err := client.Configure(t.Context(), "one", "one", nil)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if _, err := client.Instance("one", kinds).Selection.Select(ctx, &policy.SelectRequest{
				Request: &policy.Request{ID: "r"}, Candidates: []policy.Candidate{{ID: "a"}},
			}); err != nil {
				t.Fatal(err)
			}
			if at := <-seen; at.Before(began) || at.After(time.Now().Add(time.Hour)) {
				t.Errorf("the deadline is %s, want one within an hour from %s", at, began)
			}
		})
	}
}

package caddymodule_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// oddCommand is the argument with which the test binary serves an odd policy.
const oddCommand = "odd-policy"

// odd are policies as others write them, right and wrong, by their names.
var odd = map[string]sdk.Policies{
	"failing":   {Selection: selector(fail), Admission: admitter(failToAdmit)},
	"panicking": {Selection: selector(func(*policy.SelectRequest) policy.Selection { panic("odd") }), Admission: admitter(panics)},
	"slow":      {Selection: slow{}},
	"picky":     {Selection: selector(skipFirst)},
	"backwards": {Selection: selector(backwards)},
	"forgetful": {Selection: selector(forget)},
	"careless":  {Selection: selector(backwards), Admission: admitter(admitFirst)},
	"clinging":  {Admission: admitter(cling)},
	"curious":   {Selection: selector(tell)},
	"doorman":   {Admission: admitter(admitFirst)},
	"rejecting": {Admission: admitter(reject)},
	"dawdling":  {Admission: admitter(dawdle)},
	"moving":    {Admission: admitter(move)},
	"revoking":  {Admission: admitter(revokeLast)},
}

// plugins is the global option that declares odd policies under their names.
func plugins(t *testing.T, lines string, names ...string) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, name := range names {
		text.WriteString(fmt.Sprintf("plugin %s %s %s %s {\n%s\n}\n", name, path, oddCommand, name, lines))
	}
	return "usher {\n" + text.String() + "}\n"
}

func serveOdd(name string) {
	type config struct {
		Name string `json:"name"`
	}
	sdk.Serve(name, config{}, func(_ context.Context, c config) (sdk.Policies, error) {
		if name == "operated" {
			return sdk.Policies{Selection: operatedPolicy{selector(backwards), c.Name}}, nil
		}
		p, ok := odd[name]
		if !ok {
			return p, errors.New("no such policy")
		}
		return p, nil
	})
}

// A selector is a [policy.Selector]; it fails where it selects nothing.
type selector func(*policy.SelectRequest) policy.Selection

func (s selector) Select(_ context.Context, req *policy.SelectRequest) (policy.Selection, error) {
	selection := s(req)
	if selection.Verdicts == nil {
		return selection, errors.New("out of order")
	}
	return selection, nil
}

// An admitter is a [policy.Admitter].
type admitter func(context.Context, *policy.AdmitRequest) (policy.Lease, error)

func (a admitter) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	return a(ctx, req)
}

func fail(*policy.SelectRequest) policy.Selection { return policy.Selection{} }

func failToAdmit(context.Context, *policy.AdmitRequest) (policy.Lease, error) {
	return nil, errors.New("out of order")
}

func panics(context.Context, *policy.AdmitRequest) (policy.Lease, error) { panic("odd") }

// slow answers long after anybody waits for it.
type slow struct{}

func (slow) Select(ctx context.Context, req *policy.SelectRequest) (policy.Selection, error) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
	}
	return policy.Selection{}, ctx.Err()
}

// skipFirst leaves the first candidate out for some seconds.
func skipFirst(req *policy.SelectRequest) (s policy.Selection) {
	for i, c := range req.Candidates {
		if i == 0 {
			s.Skip(c, policy.Why{
				Reason: policy.ReasonPolicy, Detail: "not the first", Observed: 1, Limit: 2,
				Until: time.Now().Add(20 * time.Second),
			})
			continue
		}
		s.Add(c)
	}
	return s
}

func backwards(req *policy.SelectRequest) (s policy.Selection) {
	for _, c := range slices.Backward(req.Candidates) {
		s.Add(c)
	}
	return s
}

// forget says nothing but of the first candidate.
func forget(req *policy.SelectRequest) (s policy.Selection) {
	s.Add(req.Candidates[0])
	return s
}

// tell says what it sees of the request, and skips everything.
func tell(req *policy.SelectRequest) (s policy.Selection) {
	seen := fmt.Sprintf("headers %q body %q", slices.Sorted(maps.Keys(req.Request.Header)), req.Request.Body)
	for _, c := range req.Candidates {
		s.Skip(c, policy.Why{Reason: policy.ReasonPolicy, Detail: seen})
	}
	return s
}

// admitFirst admits everybody, and logs how the lease ends.
func admitFirst(_ context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	return policy.LeaseFunc(func(_ context.Context, out policy.Outcome) error {
		slog.Info("the doorman hears of an end", "request", req.Request.ID, "attempt", req.Attempt,
			"disposition", out.Disposition, "usage_known", out.Usage != nil)
		return nil
	}), nil
}

func reject(context.Context, *policy.AdmitRequest) (policy.Lease, error) {
	return nil, policy.Reject(policy.ReasonPolicy, 7*time.Second)
}

// dawdle lets everybody wait, also where it must not.
func dawdle(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	if req.Waiting != nil {
		req.Waiting(1)
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// move lets everybody wait in a line of three that moves.
func move(_ context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	for position := 3; position > 0; position-- {
		req.Waiting(position)
		time.Sleep(100 * time.Millisecond) // so that each is seen
	}
	return policy.LeaseFunc(func(context.Context, policy.Outcome) error { return nil }), nil
}

// cling admits everybody, and takes its time to note the end.
func cling(context.Context, *policy.AdmitRequest) (policy.Lease, error) {
	return policy.LeaseFunc(func(context.Context, policy.Outcome) error {
		time.Sleep(8 * time.Second)
		return nil
	}), nil
}

// lastRevoke revokes the lease that was given last.
var lastRevoke func(policy.Reason)

// revokeLast admits one request, and revokes its lease when the next one comes.
func revokeLast(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	if lastRevoke != nil {
		lastRevoke(policy.ReasonStoreUnavailable)
	}
	lastRevoke = req.Revoke
	return admitFirst(ctx, req)
}

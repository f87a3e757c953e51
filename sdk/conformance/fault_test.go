package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/policytest"
)

// faultEnv tells a test process which fault to run the suites against.
const faultEnv = "POLICYTEST_FAULT"

// A fault is a way to break the contract. Its functions are nil where the
// policy is right.
type fault struct {
	// context and ask change what the gate gets to see.
	context func(context.Context) context.Context
	ask     func(req *policy.AdmitRequest)

	// answer and release change what it answers and how it releases.
	answer  func(g *gate, req *policy.AdmitRequest, l policy.Lease, err error) (policy.Lease, error)
	release func(l policy.Lease, out policy.Outcome)

	// restore changes what it gets to see of a restart.
	restore func(running []policy.Held, waiting []policy.AdmitRequest) ([]policy.Held, []policy.AdmitRequest)

	// operate changes how it answers operators.
	operate func(g *gate, cmd policy.Command) (json.RawMessage, error)

	// found is the check that must fail.
	found string
}

var faults = map[string]fault{
	"keeps released room": {
		release: func(policy.Lease, policy.Outcome) {},
		found:   "admitter/released room is used again",
	},
	"frees two places": {
		release: func(l policy.Lease, out policy.Outcome) { releaseNow(l, out); releaseNow(l, out) },
		found:   "admitter/one release frees one place",
	},
	"gives unknown usage back": {
		release: func(l policy.Lease, out policy.Outcome) {
			if out.Usage == nil {
				out.Usage = &policy.Usage{}
			}
			releaseNow(l, out)
		},
		found: "scopes/unknown usage stays spent",
	},
	"does not say that it waits": {
		ask:   func(req *policy.AdmitRequest) { req.Waiting = nil },
		found: "admitter/a request that waits says so and gets its turn",
	},
	"waits although it must not": {
		ask:   func(req *policy.AdmitRequest) { req.NoWait = false },
		found: "admitter/released room is used again",
	},
	"knows one candidate": {
		ask:   func(req *policy.AdmitRequest) { req.Candidates = req.Candidates[:1] },
		found: "scopes/the next candidate serves when the first is full",
	},
	"has no limit": {
		ask:   func(req *policy.AdmitRequest) { req.Request = &policy.Request{ID: req.Request.ID} },
		found: "scopes/no concurrency limit is ever passed",
	},
	"mixes the kinds of scope": {
		ask: func(req *policy.AdmitRequest) {
			r := *req.Request
			r.Scopes = nil
			for _, s := range req.Request.Scopes {
				r.Scopes = append(r.Scopes, policy.Scope{ID: s.ID, Kind: policy.ScopeConcurrency, Limit: s.Limit})
			}
			req.Request = &r
		},
		found: "scopes/scopes of one ID and different kinds are different",
	},
	"changes its argument": {
		ask:   func(req *policy.AdmitRequest) { req.Candidates[0].Weight = 7 },
		found: "admitter/arguments are not changed",
	},
	"does not notice who leaves": {
		context: context.WithoutCancel,
		found:   "admitter/a caller that leaves is forgotten",
	},
	"admits who has left": {
		answer: func(g *gate, req *policy.AdmitRequest, l policy.Lease, err error) (policy.Lease, error) {
			if errors.Is(err, context.Canceled) {
				g.enter(req) // nobody gets this lease
			}
			return l, err
		},
		found: "admitter/a caller that leaves is forgotten",
	},
	"rejects in its own words": {
		answer: func(_ *gate, _ *policy.AdmitRequest, l policy.Lease, err error) (policy.Lease, error) {
			if err != nil {
				return nil, policy.Reject("no_luck", 0)
			}
			return l, nil
		},
		found: "admitter/one release frees one place",
	},
	"fails instead of rejecting": {
		answer: func(_ *gate, _ *policy.AdmitRequest, l policy.Lease, err error) (policy.Lease, error) {
			if err != nil {
				return nil, errors.New("no luck")
			}
			return l, nil
		},
		found: "admitter/one release frees one place",
	},
	"names a candidate that was not offered": {
		answer: func(_ *gate, req *policy.AdmitRequest, l policy.Lease, err error) (policy.Lease, error) {
			if err != nil {
				return nil, err
			}
			return policy.LeaseOn(len(req.Candidates), l.Release), nil
		},
		found: "admitter/a request is admitted and released",
	},
	"counts whom it rejects": {
		answer: func(g *gate, req *policy.AdmitRequest, l policy.Lease, err error) (policy.Lease, error) {
			if req.NoWait && l == nil {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.held[keyOf(req.Request.Scopes[0])]++
			}
			return l, err
		},
		found: "scopes/a rejected request holds nothing",
	},
	"forgets what runs": {
		restore: func(_ []policy.Held, waiting []policy.AdmitRequest) ([]policy.Held, []policy.AdmitRequest) {
			return nil, waiting
		},
		found: "restorer/running requests count",
	},
	"takes any command": {
		operate: func(g *gate, _ policy.Command) (json.RawMessage, error) {
			return g.Operate(context.Background(), policy.Command{Name: "status"})
		},
		found: "operable/an unknown command is an error that names it",
	},
	"needs input for its status": {
		operate: func(_ *gate, cmd policy.Command) (json.RawMessage, error) {
			return nil, json.Unmarshal(cmd.Input, new(int))
		},
		found: "operable/status is answered as JSON and without input",
	},
	"answers in prose": {
		operate: func(*gate, policy.Command) (json.RawMessage, error) { return json.RawMessage("all is well"), nil },
		found:   "operable/status is answered as JSON and without input",
	},
	"turns the line round": {
		restore: func(running []policy.Held, waiting []policy.AdmitRequest) ([]policy.Held, []policy.AdmitRequest) {
			waiting = slices.Clone(waiting)
			slices.Reverse(waiting)
			return running, waiting
		},
		found: "restorer/waiting requests keep their order",
	},
}

// faulty is a gate with a fault.
type faulty struct {
	*gate
	fault
}

func (f *faulty) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	if f.context != nil {
		ctx = f.context(ctx)
	}
	asked := *req
	if f.ask != nil {
		f.ask(&asked)
	}
	lease, err := f.gate.Admit(ctx, &asked)
	if f.answer != nil {
		lease, err = f.answer(f.gate, &asked, lease, err)
	}
	if f.release == nil || err != nil {
		return lease, err
	}
	return policy.LeaseOn(lease.Candidate(), func(_ context.Context, out policy.Outcome) error {
		f.release(lease, out)
		return nil
	}), nil
}

func (f *faulty) Restore(ctx context.Context, running []policy.Held, waiting []policy.AdmitRequest) ([]policy.Lease, error) {
	n := len(running)
	if f.restore != nil {
		running, waiting = f.restore(running, waiting)
	}
	leases, err := f.gate.Restore(ctx, running, waiting)
	for len(leases) < n {
		leases = append(leases, policy.LeaseFunc(func(context.Context, policy.Outcome) error { return nil }))
	}
	return leases, err
}

func (f *faulty) Operate(ctx context.Context, cmd policy.Command) (json.RawMessage, error) {
	if f.operate != nil {
		return f.operate(f.gate, cmd)
	}
	return f.gate.Operate(ctx, cmd)
}

func releaseNow(l policy.Lease, out policy.Outcome) { _ = l.Release(context.Background(), out) }

func TestSuitesFindFaults(t *testing.T) {
	t.Parallel()
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite, check, _ := strings.Cut(f.found, "/")
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", "^TestFaultyPolicy$/^"+suite+"$/^"+check+"$")
			cmd.Env = append(os.Environ(), faultEnv+"="+name)
			out, err := cmd.CombinedOutput()
			failed := "--- FAIL: TestFaultyPolicy/" + suite + "/" + strings.ReplaceAll(check, " ", "_")
			if err == nil || !strings.Contains(string(out), failed) {
				t.Errorf("the suites did not find the fault (%v):\n%s", err, out)
			}
		})
	}
}

// TestFaultyPolicy fails. It runs in the processes that TestSuitesFindFaults
// starts.
func TestFaultyPolicy(t *testing.T) {
	f, ok := faults[os.Getenv(faultEnv)]
	if !ok {
		t.Skip("runs in a process of its own")
	}
	build := func() *faulty { return &faulty{newGate(), f} }
	t.Run("admitter", func(t *testing.T) {
		policytest.TestAdmitter(t, func(*testing.T) policy.Admitter { return build() })
	})
	t.Run("scopes", func(t *testing.T) {
		policytest.TestScopes(t, func(*testing.T) policy.Admitter { return build() })
	})
	t.Run("restorer", func(t *testing.T) {
		policytest.TestRestorer(t, func(*testing.T) policy.Restorer { return build() })
	})
	t.Run("operable", func(t *testing.T) {
		policytest.TestOperable(t, func(*testing.T) policy.Operable { return build() })
	})
}

var _ policy.Restorer = (*faulty)(nil)

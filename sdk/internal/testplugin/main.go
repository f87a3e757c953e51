// Command testplugin is a plugin for tests of package sdk with a real process.
// Its admission policy admits one request at a time and rejects all others; its
// selection policy logs each request and ranks all candidates.
package main

import (
	"context"
	"log/slog"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

type config struct {
	// StuckClose lets Close ignore the end of its context.
	StuckClose bool `json:"stuck_close"`
}

func main() {
	sdk.Serve("testplugin", config{}, func(_ context.Context, c config) (sdk.Policies, error) {
		p := sdk.Policies{Admission: make(slot, 1), Selection: selector{}}
		if c.StuckClose {
			p.Close = func(context.Context) error { select {} }
		}
		return p, nil
	})
}

type slot chan struct{}

func (s slot) Admit(_ context.Context, _ *policy.AdmitRequest) (policy.Lease, error) {
	select {
	case s <- struct{}{}:
		return policy.LeaseFunc(func(context.Context, policy.Outcome) error { <-s; return nil }), nil
	default:
		return nil, policy.Reject(policy.ReasonConcurrency, 0)
	}
}

type selector struct{}

func (selector) Select(ctx context.Context, req *policy.SelectRequest) (s policy.Selection, err error) {
	slog.InfoContext(ctx, "select", "request", req.Request.ID, "candidates", len(req.Candidates))
	for _, c := range req.Candidates {
		s.Add(c)
	}
	return s, nil
}

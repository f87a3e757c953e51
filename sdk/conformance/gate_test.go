package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// gate is an admission policy that keeps all of the contract in the simplest
// way: under one lock, with a look at the whole line after each change.
type gate struct {
	mu   sync.Mutex
	held map[scopeKey]int64
	line []*place // by arrival
}

type scopeKey struct {
	id     string
	kind   policy.ScopeKind
	window time.Duration
}

// A place in line is kept for a restored request before it asks again.
type place struct {
	req   *policy.AdmitRequest
	asked bool
	ready chan policy.Lease
}

func newGate() *gate { return &gate{held: map[scopeKey]int64{}} }

type gateConfig struct {
	Name string `json:"name"`
}

func defineGate() sdk.Definition {
	return sdk.Define("gate", gateConfig{}, func(context.Context, gateConfig) (sdk.Policies, error) {
		return sdk.Policies{Admission: newGate()}, nil
	})
}

func (g *gate) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	p := g.enter(req)
	if req.NoWait && g.leave(p) {
		return nil, policy.Reject(policy.ReasonQueueFull, time.Second)
	}
	select {
	case lease := <-p.ready:
		return lease, nil
	case <-ctx.Done():
		if g.leave(p) {
			return nil, ctx.Err()
		}
		return <-p.ready, nil // admitted at the same moment
	}
}

// enter puts req in line.
func (g *gate) enter(req *policy.AdmitRequest) *place {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.line, func(p *place) bool {
		return p.req.Request.ID == req.Request.ID && p.req.Attempt == req.Attempt
	})
	if i < 0 {
		for i = len(g.line); i > 0 && g.line[i-1].req.Request.Arrival > req.Request.Arrival; i-- {
		}
		g.line = slices.Insert(g.line, i, &place{ready: make(chan policy.Lease, 1)})
	}
	p := g.line[i]
	p.req, p.asked = req, true
	g.moveLocked()
	if i := slices.Index(g.line, p); i >= 0 && req.Waiting != nil {
		req.Waiting(i + 1)
	}
	return p
}

// leave takes p out of line, and reports whether it still was there.
func (g *gate) leave(p *place) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.line, p)
	if i < 0 {
		return false
	}
	g.line = slices.Delete(g.line, i, i+1)
	g.moveLocked()
	return true
}

// moveLocked admits all in line for whom there is room.
func (g *gate) moveLocked() {
	g.line = slices.DeleteFunc(g.line, func(p *place) bool {
		if !p.asked {
			return false
		}
		i := slices.IndexFunc(p.req.Candidates, func(c policy.Candidate) bool {
			return g.fitsLocked(p.req.Request, scopesOf(p.req.Request, c))
		})
		if i < 0 {
			return false
		}
		p.ready <- g.takeLocked(p.req.Request, p.req.Candidates[i], i)
		return true
	})
}

func (g *gate) fitsLocked(r *policy.Request, scopes []policy.Scope) bool {
	return !slices.ContainsFunc(scopes, func(s policy.Scope) bool {
		return g.held[keyOf(s)]+s.Amount(r) > s.Limit
	})
}

func (g *gate) takeLocked(r *policy.Request, c policy.Candidate, index int) policy.Lease {
	scopes := scopesOf(r, c)
	for _, s := range scopes {
		g.held[keyOf(s)] += s.Amount(r)
	}
	return policy.LeaseOn(index, func(_ context.Context, out policy.Outcome) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, s := range scopes {
			switch {
			case s.Kind == policy.ScopeConcurrency:
				g.held[keyOf(s)]--
			case s.Kind == policy.ScopeTokens && out.Usage != nil:
				g.held[keyOf(s)] += out.Usage.Total() - s.Amount(r)
			}
		}
		g.moveLocked()
		return nil
	})
}

func (g *gate) Restore(_ context.Context, running []policy.Held, waiting []policy.AdmitRequest) ([]policy.Lease, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var leases []policy.Lease
	for _, h := range running {
		leases = append(leases, g.takeLocked(h.Request, h.Candidate, 0))
	}
	for _, w := range waiting {
		g.line = append(g.line, &place{req: &w, ready: make(chan policy.Lease, 1)})
	}
	return leases, nil
}

// Operate tells how many requests wait.
func (g *gate) Operate(ctx context.Context, cmd policy.Command) (json.RawMessage, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if cmd.Name != "status" {
		return nil, fmt.Errorf("unknown command %q; the gate knows status", cmd.Name)
	}
	return json.Marshal(map[string]int{"waiting": len(g.line)})
}

func scopesOf(r *policy.Request, c policy.Candidate) []policy.Scope {
	return slices.Concat(r.Scopes, c.Scopes)
}

func keyOf(s policy.Scope) scopeKey { return scopeKey{s.ID, s.Kind, s.Window} }

var (
	_ policy.Restorer = (*gate)(nil)
	_ policy.Operable = (*gate)(nil)
)

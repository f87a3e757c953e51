package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/plugins/fifo/internal/reference"
	"github.com/usherproxy/usher/policy"
)

// histories does the same at random to the store and to the model, and finds
// them in agreement after each step.
func histories(s *suite) {
	for seed := range uint64(8) {
		h := &history{suite: s, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), asked: map[*reference.Entry]*call{}}
		for range 250 {
			h.step()
			h.compare()
		}
		h.drain()
	}
}

type history struct {
	*suite
	seed  uint64
	rand  *rand.Rand
	model reference.Model
	asked map[*reference.Entry]*call
}

func (h *history) step() {
	switch p := h.rand.IntN(100); {
	case p < 55:
		h.admit()
	case p < 85 && len(h.model.Running) > 0:
		h.end(h.model.Running[h.rand.IntN(len(h.model.Running))])
	case len(h.model.Waiting) > 0:
		h.end(h.model.Waiting[h.rand.IntN(len(h.model.Waiting))])
	}
}

func (h *history) admit() {
	req := h.request(h.some("caller:a", "caller:b", "fleet")...)
	req.Request.ID = fmt.Sprintf("seed %d %s", h.seed, req.Request.ID)
	req.Request.Priority = h.rand.IntN(6) / 5
	req.Request.InputTokens = int64(h.rand.IntN(6))
	req.NoWait = h.rand.IntN(10) == 0
	req.Candidates = nil
	for i := range 1 + h.rand.IntN(3) {
		req.Candidates = append(req.Candidates, policy.Candidate{ID: fmt.Sprint("c", i), Scopes: h.some("key:1", "key:2", "fleet")})
	}
	h.rules = fifo.Rules{Order: fifo.OrderBestEffort, MaxPasses: h.rand.IntN(3), QueueLimit: h.rand.IntN(2) * 5}
	if h.rand.IntN(10) == 0 {
		h.rules.Order = fifo.OrderStrict
	}
	e, reason := h.model.Admit(time.Now(), req, h.rules)
	c := h.ask(req)
	switch {
	case reason != "":
		if lease, err := c.result(); err == nil {
			h.Fatalf("seed %d: %s got %v, want %s", h.seed, req.Request.ID, lease, reason)
		}
		return
	case slices.Contains(h.model.Waiting, e):
		c.hasWaited()
	}
	h.asked[e] = c
}

func (h *history) end(e *reference.Entry) {
	c := h.asked[e]
	delete(h.asked, e)
	if slices.Contains(h.model.Waiting, e) {
		h.model.Cancel(time.Now(), e)
		c.leave()
		return
	}
	usage := &policy.Usage{InputTokens: int64(h.rand.IntN(6))}
	if h.rand.IntN(4) == 0 {
		usage = nil
	}
	h.model.Release(time.Now(), e, usage)
	h.settle(usage, c.admitted())
}

func (h *history) compare() {
	if err := h.model.Check(time.Now()); err != nil {
		h.Fatalf("seed %d: the model is wrong: %v", h.seed, err)
	}
	for _, e := range h.model.Running {
		if got := h.asked[e].admitted().Candidate(); got != e.Candidate {
			h.Fatalf("seed %d: %s runs on %d, want %d", h.seed, e.Request.ID, got, e.Candidate)
		}
	}
	for _, e := range h.model.Waiting {
		h.asked[e].stillWaits()
	}
}

func (h *history) drain() {
	for len(h.model.Waiting) > 0 {
		h.end(h.model.Waiting[0])
	}
	for len(h.model.Running) > 0 {
		h.end(h.model.Running[0])
	}
}

func (h *history) some(names ...string) []policy.Scope {
	var scopes []policy.Scope
	for range h.rand.IntN(3) {
		id := names[h.rand.IntN(len(names))]
		if h.rand.IntN(4) == 0 {
			scopes = append(scopes, tokens(fmt.Sprint(h.seed, " ", id), 40))
		} else {
			scopes = append(scopes, concurrency(fmt.Sprint(h.seed, " ", id), 2))
		}
	}
	return scopes
}

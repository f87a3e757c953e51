package queue_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/plugins/fifo/internal/reference"
	"github.com/usherproxy/usher/policy"
)

// Random histories: the queue agrees with the model after every step, and the
// model keeps invariants 1 to 6, 8, 10 and 12.
func TestQueueAgreesWithTheModel(t *testing.T) {
	t.Parallel()
	histories := 600
	if testing.Short() {
		histories = 100
	}
	for seed := range uint64(histories) {
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			h := newHistory(t, seed)
			for range 150 {
				h.advance()
			}
			h.drain()
		}) {
			return
		}
	}
}

// A history does the same to a queue and to a model.
type history struct {
	t     *testing.T
	rand  *rand.Rand
	now   time.Time
	queue *queue.Queue
	model reference.Model
	pairs []pair
	limit map[string]int64
	count int64

	// What kind of history it is.
	rules   []queue.Rules
	kinds   []policy.ScopeKind
	unlike  int // how many of a hundred come out of order
	callers int // how many callers there are, and keys
}

type pair struct {
	ticket *queue.Ticket
	entry  *reference.Entry
}

func newHistory(t *testing.T, seed uint64) *history {
	epoch, dice := time.Unix(1e9, 0), rand.New(rand.NewPCG(seed, 0))
	h := &history{
		t: t, rand: dice, now: epoch, queue: queue.New(epoch), limit: map[string]int64{},
		rules:   []queue.Rules{{}, {MaxPasses: 1}, {MaxPasses: 2, QueueLimit: 1 + dice.IntN(4)}},
		kinds:   policy.ScopeKinds(),
		unlike:  10 + 50*dice.IntN(2),
		callers: 1 + dice.IntN(2),
	}
	if dice.IntN(3) == 0 {
		h.rules = append(h.rules, queue.Rules{Order: queue.OrderStrict}, queue.Rules{Order: queue.OrderStrict, QueueLimit: 3})
	}
	if dice.IntN(3) == 0 {
		h.kinds = []policy.ScopeKind{policy.ScopeConcurrency, policy.ScopeTokens, policy.ScopeTokens}
	}
	return h
}

// advance lets time pass and something happen.
func (h *history) advance() {
	h.pass(time.Duration(h.rand.IntN(4)) * time.Second)
	h.step()
	h.compare()
}

func (h *history) step() {
	switch p := h.rand.IntN(100); {
	case p < 55 || len(h.pairs) == 0:
		h.admit()
	case p < 90:
		h.end(h.rand.IntN(len(h.pairs)))
	default:
		h.queue.Tick(h.now)
		h.model.Settle(h.now)
	}
}

// pass lets time pass, and wakes the queue when it wants to be woken.
func (h *history) pass(d time.Duration) {
	until := h.now.Add(d)
	for {
		next, ok := h.queue.Next()
		if !ok || next.After(until) {
			break
		}
		h.now = next
		h.queue.Tick(h.now)
		h.model.Settle(h.now)
		h.compare()
	}
	h.now = until
}

func (h *history) admit() {
	h.count++
	req, rules := h.request(), h.rules[h.rand.IntN(len(h.rules))]
	entry, reason := h.model.Admit(h.now, req, rules)
	ticket, _, err := h.queue.Admit(h.now, req, rules)
	if (err == nil) != (reason == "") {
		h.t.Fatalf("Admit(%s) = %v, want reason %q", req.Request.ID, err, reason)
	}
	if err == nil {
		h.pairs = append(h.pairs, pair{ticket, entry})
	}
}

func (h *history) end(i int) {
	p := h.pairs[i]
	h.pairs = slices.Delete(h.pairs, i, i+1)
	if !p.ticket.Running() {
		h.queue.Forget(h.now, p.ticket)
		h.model.Cancel(h.now, p.entry)
		return
	}
	var usage *policy.Usage
	if h.rand.IntN(2) == 0 {
		usage = &policy.Usage{OutputTokens: int64(h.rand.IntN(8))}
	}
	h.queue.Release(h.now, p.ticket, usage)
	h.queue.Release(h.now, p.ticket, usage) // invariant 8: changes nothing
	h.model.Release(h.now, p.entry, usage)
}

func (h *history) compare() {
	h.t.Helper()
	if err := h.model.Check(h.now); err != nil {
		h.t.Fatal(err)
	}
	positions := map[*queue.Ticket]int{}
	h.queue.Positions(func(t *queue.Ticket, position int) { positions[t] = position })
	for _, p := range h.pairs {
		runs := slices.Contains(h.model.Running, p.entry)
		switch {
		case p.ticket.Running() != runs:
			h.t.Fatalf("%s runs: %t, want %t", p.entry.Request.ID, p.ticket.Running(), runs)
		case runs && p.ticket.Candidate() != p.entry.Candidate:
			h.t.Fatalf("%s runs on %d, want %d", p.entry.Request.ID, p.ticket.Candidate(), p.entry.Candidate)
		case !runs && (positions[p.ticket] != h.model.Position(p.entry) || h.queue.Position(p.ticket) != positions[p.ticket]):
			h.t.Fatalf("position of %s = %d and %d, want %d", p.entry.Request.ID,
				h.queue.Position(p.ticket), positions[p.ticket], h.model.Position(p.entry))
		}
	}
}

// drain ends all and finds nothing left.
func (h *history) drain() {
	for len(h.pairs) > 0 {
		h.end(len(h.pairs) - 1)
	}
	h.now = h.now.Add(time.Hour)
	h.queue.Tick(h.now)
	if left := h.queue.Left(h.now); left != (queue.Leftovers{}) {
		h.t.Fatalf("left after all was released: %+v", left)
	}
}

// request returns a request for a few of a few scopes.
func (h *history) request() *policy.AdmitRequest {
	req := &policy.AdmitRequest{Attempt: 1, NoWait: h.rand.IntN(12) == 0, Request: &policy.Request{
		ID: fmt.Sprint("r", h.count), Arrival: h.count, InputTokens: int64(h.rand.IntN(6)),
		Scopes: h.some(3, "fleet", "caller:a", "caller:b"),
	}}
	if h.rand.IntN(100) < h.unlike {
		req.Request.Arrival = max(1, h.count-int64(h.rand.IntN(10)))
		req.Request.Priority = h.rand.IntN(3) - 1
	}
	for i := range 1 + h.rand.IntN(3) {
		req.Candidates = append(req.Candidates, policy.Candidate{
			ID: fmt.Sprint("c", i), Scopes: h.some(4, "key:1", "key:2", "provider:p", "fleet"),
		})
	}
	return req
}

func (h *history) some(most int, names ...string) []policy.Scope {
	var scopes []policy.Scope
	for range h.rand.IntN(most) {
		s := policy.Scope{ID: names[h.rand.IntN(h.callers*len(names)/2)], Kind: h.kinds[h.rand.IntN(len(h.kinds))]}
		if s.Kind != policy.ScopeConcurrency {
			s.Window = 10 * time.Second
		}
		s.Limit = h.limitOf(s.ID + string(s.Kind))
		scopes = append(scopes, s)
	}
	return scopes
}

// limitOf returns the limit of a scope, which changes now and then.
func (h *history) limitOf(name string) int64 {
	if h.limit[name] == 0 || h.rand.IntN(20) == 0 {
		h.limit[name] = 1 + int64(h.rand.IntN(5))
	}
	return h.limit[name]
}

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
	histories := 300
	if testing.Short() {
		histories = 100
	}
	var handed int
	for seed := range uint64(histories) {
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			h := newHistory(t, seed)
			for range 150 {
				h.advance()
			}
			h.drain()
			handed += h.handed
		}) {
			return
		}
	}
	if handed < histories {
		t.Errorf("leases have passed to heirs %d times only", handed)
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
	asked map[string]bool // who was asked to return what
	count int64

	handed int // how often a lease has passed to an heir

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
		t: t, rand: dice, now: epoch, queue: queue.New(epoch), limit: map[string]int64{}, asked: map[string]bool{},
		rules:   []queue.Rules{{}, {MaxPasses: 1}, {MaxPasses: 2, QueueLimit: 1 + dice.IntN(4)}},
		kinds:   policy.ScopeKinds(),
		unlike:  10 + 50*dice.IntN(2),
		callers: 1 + dice.IntN(2),
	}
	if dice.IntN(3) == 0 {
		h.rules = append(h.rules, queue.Rules{Order: queue.OrderStrict}, queue.Rules{Order: queue.OrderStrict, QueueLimit: 3})
	}
	switch dice.IntN(3) {
	case 0:
		h.kinds = []policy.ScopeKind{policy.ScopeConcurrency, policy.ScopeTokens, policy.ScopeTokens}
	case 1:
		h.kinds = []policy.ScopeKind{policy.ScopeConcurrency}
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
	case p < 57:
		h.resume()
	case p < 75:
		h.hand()
	case p < 85:
		h.end(h.rand.IntN(len(h.pairs)))
	case p < 93:
		h.loan()
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
	holder := int64(h.rand.IntN(3))
	entry, reason := h.model.AdmitFor(h.now, holder, req, rules)
	ticket, _, err := h.queue.AdmitFor(h.now, holder, req, rules)
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
	h.recalled()
	positions := map[*queue.Ticket]int{}
	h.queue.Positions(func(t *queue.Ticket, position int) { positions[t] = position })
	for _, p := range h.pairs {
		runs := slices.Contains(h.model.Running, p.entry)
		switch {
		case p.ticket.Running() != runs:
			h.t.Fatalf("%s runs: %t, want %t", p.entry.Request.ID, p.ticket.Running(), runs)
		case runs && p.ticket.Candidate() != p.entry.Candidate:
			h.t.Fatalf("%s runs on %d, want %d", p.entry.Request.ID, p.ticket.Candidate(), p.entry.Candidate)
		case !runs && h.model.Settled(p.entry, 1) != h.queue.Settled(p.ticket, 1):
			h.t.Fatalf("%s: loans are settled: %t", p.entry.Request.ID, h.queue.Settled(p.ticket, 1))
		case !runs && (positions[p.ticket] != h.model.Position(p.entry) || h.queue.Position(p.ticket) != positions[p.ticket]):
			h.t.Fatalf("position of %s = %d and %d, want %d", p.entry.Request.ID,
				h.queue.Position(p.ticket), positions[p.ticket], h.model.Position(p.entry))
		}
	}
}

// loan lends something, or takes it back.
func (h *history) loan() {
	holder, names := int64(1+h.rand.IntN(2)), []string{"fleet", "caller:a", "key:1", "key:2"}
	switch h.rand.IntN(5) {
	case 0:
		h.queue.ReturnAll(h.now, holder)
		h.model.ReturnAll(h.now, holder)
	case 1, 2:
		var loans []queue.Loan
		for _, id := range names[h.rand.IntN(2):] {
			loans = append(loans, queue.Loan{Scope: id, N: int64(h.rand.IntN(3))})
		}
		h.queue.Return(h.now, holder, loans)
		for _, l := range loans {
			h.model.Return(holder, l.Scope, l.N)
		}
		h.model.Settle(h.now)
	default:
		ids := names[h.rand.IntN(len(names)):]
		want := h.model.Lend(h.now, holder, ids)
		if got := h.queue.Lend(holder, ids); got != want {
			h.t.Fatalf("Lend(%v) = %t, want %t", ids, got, want)
		}
	}
}

// recalled checks that everybody who was lent something that is waited for, and
// has not said that it is in use, was asked for it.
func (h *history) recalled() {
	h.queue.Recalled(func(scope string, holder int64) { h.asked[fmt.Sprint(scope, holder)] = true })
	for _, id := range []string{"fleet", "caller:a", "key:1", "key:2"} {
		for holder := range int64(3) {
			name := fmt.Sprint(id, holder)
			switch claimed := h.model.Claimed(h.now, id); {
			case !claimed || h.model.Lent(holder, id) == 0:
				delete(h.asked, name)
			case !h.asked[name]:
				h.t.Fatalf("%d was not asked to return %s", holder, id)
			}
		}
	}
}

// drain ends all and finds nothing left.
func (h *history) drain() {
	for len(h.pairs) > 0 {
		h.end(len(h.pairs) - 1)
	}
	for holder := range int64(3) {
		h.queue.ReturnAll(h.now, holder)
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

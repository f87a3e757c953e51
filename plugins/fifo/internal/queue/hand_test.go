package queue_test

import (
	"slices"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/plugins/fifo/internal/reference"
	"github.com/usherproxy/usher/policy"
)

// A later is a command that the queue has not heard of.
type later struct {
	of, heir  pair
	candidate int
}

// hand decides on the ends of some leases, and on the leave of some who wait,
// before the queue hears of any: what they hold passes to heirs where the queue
// tells one. The model finds that nobody was passed.
func (h *history) hand() {
	var commands []later
	gone, freed := map[*queue.Ticket]bool{}, map[string]bool{}
	for range 1 + h.rand.IntN(4) {
		if len(h.pairs) == 0 {
			break
		}
		i := h.rand.IntN(len(h.pairs))
		if j := h.rand.IntN(len(h.pairs)); h.pairs[j].ticket.Running() { // rather those
			i = j
		}
		c := later{of: h.pairs[i]}
		h.pairs = slices.Delete(h.pairs, i, i+1)
		if c.of.ticket.Running() {
			h.findHeir(&c, gone, freed)
		}
		if c.heir.ticket == nil {
			for _, s := range c.of.entry.Needs() {
				freed[s.ID] = true
			}
		}
		gone[c.of.ticket], gone[c.heir.ticket] = true, true
		commands = append(commands, c)
	}
	for _, c := range commands {
		h.do(c)
	}
}

func (h *history) findHeir(c *later, gone map[*queue.Ticket]bool, freed map[string]bool) {
	var ids []string
	for _, s := range c.of.entry.Holds() {
		if s.Kind == policy.ScopeConcurrency {
			ids = append(ids, s.ID)
		}
	}
	heir, candidate := h.queue.Heir(ids, func(yield func(string) bool) {
		for id := range freed {
			if !yield(id) {
				return
			}
		}
	}, func(t *queue.Ticket) bool { return gone[t] })
	for _, p := range h.pairs {
		if p.ticket == heir {
			c.heir, c.candidate = p, candidate
		}
	}
}

func (h *history) do(c later) {
	usage := &policy.Usage{}
	switch {
	case c.heir.ticket != nil:
		h.queue.Hand(h.now, c.of.ticket, usage, c.heir.ticket, c.candidate)
		h.model.Hand(h.now, c.of.entry, usage, c.heir.entry, c.candidate, func(*reference.Entry, string) bool { return true })
		h.handed++
	case c.of.ticket.Running():
		h.queue.Release(h.now, c.of.ticket, usage)
		h.model.Release(h.now, c.of.entry, usage)
	default:
		h.queue.Forget(h.now, c.of.ticket)
		h.model.Cancel(h.now, c.of.entry)
	}
}

// resume lets one go on that the queue does not know.
func (h *history) resume() {
	h.count++
	req := h.request()
	req.Candidates = req.Candidates[:1]
	held := policy.Held{Request: req.Request, Attempt: req.Attempt, Candidate: req.Candidates[0]}
	entry, want := h.model.Resume(h.now, req, queue.Rules{})
	ticket, _, err := h.queue.Resume(h.now, held, queue.Rules{})
	if (err == nil) != want {
		h.t.Fatalf("Resume(%s) = %v, want %t", req.Request.ID, err, want)
	}
	if err == nil {
		h.pairs = append(h.pairs, pair{ticket, entry})
	}
}

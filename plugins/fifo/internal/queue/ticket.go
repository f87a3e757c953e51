package queue

import (
	"slices"

	"github.com/usherproxy/usher/policy"
)

// A Ticket is a request's place in the queue and, once it is admitted, its
// lease.
type Ticket struct {
	request    *policy.Request
	attempt    int
	candidates []policy.Candidate
	rules      Rules
	serial     uint64
	state      state

	// candidate is the index of the one that serves it, once it runs.
	candidate int

	// own are the scopes of the request and ranked those of each candidate,
	// while it waits.
	own    []*scope
	ranked [][]*scope
	line   *line

	passes int
	kept   []*scope // where room is kept for it

	holds  []hold // what its lease holds
	inline [8]hold
}

type state uint8

const (
	waiting state = iota
	running
	ended
)

// A hold is what a lease holds of one scope.
type hold struct {
	scope  *scope
	amount int64
	take   uint64 // the serial number of the take in the scope's window
}

// Running reports whether t is a lease.
func (t *Ticket) Running() bool { return t.state == running }

// ID returns the first half of the name of t.
func (t *Ticket) ID() string { return t.request.ID }

// Attempt returns the other half.
func (t *Ticket) Attempt() int { return t.attempt }

// Arrival returns by what t is ordered among those of its priority.
func (t *Ticket) Arrival() int64 { return t.request.Arrival }

// Candidate returns the index of the candidate that t runs on.
func (t *Ticket) Candidate() int { return t.candidate }

// IndexIn returns where in the list the candidate is that t runs on, or -1.
func (t *Ticket) IndexIn(candidates []policy.Candidate) int {
	id := t.candidates[t.candidate].ID
	if t.candidate < len(candidates) && candidates[t.candidate].ID == id {
		return t.candidate
	}
	return slices.IndexFunc(candidates, func(c policy.Candidate) bool { return c.ID == id })
}

// amount returns how much of s the request takes.
func (t *Ticket) amount(s *scope) int64 {
	return policy.Scope{Kind: s.kind, Limit: s.limit}.Amount(t.request)
}

// name identifies t among the tickets of a queue.
func (t *Ticket) name() name { return name{t.request.ID, t.attempt} }

type name struct {
	id      string
	attempt int
}

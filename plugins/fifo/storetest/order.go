package storetest

import (
	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/policy"
)

// newcomers lets one arrive at each release, while twenty wait.
func newcomers(s *suite) {
	key := concurrency("key:1", 1)
	lease := s.runs(s.request(key))
	var calls []*call
	for range 20 {
		calls = append(calls, s.waits(s.request(key)))
	}
	for i := range 20 {
		newcomer := s.request(key)
		asked := make(chan *call)
		go func() { asked <- s.ask(newcomer) }()
		s.release(lease)
		calls = append(calls, <-asked)
		lease = calls[i].admitted()
	}
	for _, c := range calls[20:] {
		c.stillWaits()
		c.leave()
	}
	s.release(lease)
}

func priority(s *suite) {
	key := concurrency("key:1", 1)
	lease := s.runs(s.request(key))
	var calls []*call
	for _, p := range []int{0, 2, 1, 2} {
		req := s.request(key)
		req.Request.Priority = p
		calls = append(calls, s.waits(req))
	}
	for _, i := range []int{1, 3, 2, 0} {
		s.release(lease)
		lease = calls[i].admitted()
	}
	s.release(lease)
}

// blockedHead lets one wait for its own full scope, and others need another.
func blockedHead(s *suite) {
	fleet, a, b := concurrency("fleet", 10), concurrency("caller:a", 1), concurrency("caller:b", 5)
	lease := s.runs(s.request(a, fleet))
	a1 := s.waits(s.request(a, fleet))
	var others []policy.Lease
	for range 5 {
		others = append(others, s.runs(s.request(b, fleet)))
	}
	a1.stillWaits()
	s.release(lease)
	s.release(append(others, a1.admitted())...)
	s.free(a, b, fleet)
}

// smallerRequest would fit where a larger one waits.
func smallerRequest(s *suite) {
	sized := func(n int64) *policy.AdmitRequest {
		req := s.request(tokens("key:1", 100))
		req.Request.InputTokens = n
		return req
	}
	lease := s.runs(sized(60))
	large := s.waits(sized(80))
	small := s.waits(sized(10))
	large.leave()
	s.release(lease, small.admitted())
}

// movedHead lets a large request, which holds up a small one on a key, wait for
// its caller instead.
func movedHead(s *suite) {
	m := s.holdUp(concurrency("key:1", 1))
	s.release(m.other) // there is room for the large one, but its caller is busy
	s.release(m.small.admitted(), m.caller)
	s.release(m.large.admitted(), m.tokens)
}

// movedLine does so by a request that comes before the large one in its line.
func movedLine(s *suite) {
	m := s.holdUp(concurrency("key:1", 1))
	first := *m.large.req.Request
	first.ID, first.Priority = "first", 1
	c := s.waits(&policy.AdmitRequest{Attempt: 1, Request: &first, Candidates: m.large.req.Candidates})
	s.release(m.small.admitted(), m.caller, m.other)
	s.release(c.admitted())
	s.release(m.large.admitted(), m.tokens)
}

// A heldUp is a small request that waits behind a large one for tokens. The
// large one waits for another key, too, and its caller has become busy.
type heldUp struct {
	tokens, other, caller policy.Lease
	large, small          *call
}

func (s *suite) holdUp(other policy.Scope) heldUp {
	s.Helper()
	sized := func(n int64, own []policy.Scope, candidates ...[]policy.Scope) *policy.AdmitRequest {
		req := s.choice(candidates...)
		req.Request.Scopes, req.Request.InputTokens = own, n
		return req
	}
	caller, key := []policy.Scope{concurrency("caller:a", 1)}, []policy.Scope{tokens("key:2", 100)}
	return heldUp{
		other:  s.runs(s.request(other)),
		tokens: s.runs(sized(60, nil, key)),
		large:  s.waits(sized(80, caller, []policy.Scope{other}, key)),
		caller: s.runs(sized(0, caller, []policy.Scope{concurrency("key:3", 1)})),
		small:  s.waits(sized(10, nil, key)),
	}
}

func strictOrder(s *suite) {
	s.rules.Order = fifo.OrderStrict
	fleet, a, b := concurrency("fleet", 10), concurrency("caller:a", 1), concurrency("caller:b", 5)
	lease := s.runs(s.request(a, fleet))
	a1, b1 := s.waits(s.request(a, fleet)), s.waits(s.request(b, fleet))
	s.release(s.runs(s.request(concurrency("caller:c", 1)))) // shares nothing
	s.release(lease)
	s.release(a1.admitted(), b1.admitted())
	s.free(a, b, fleet)
}

// boundedPasses lets one wait for two scopes that are never free together.
func boundedPasses(s *suite) {
	s.rules.MaxPasses = 2
	a, b := concurrency("key:a", 1), concurrency("key:b", 1)
	holdA, holdB := s.runs(s.request(a)), s.runs(s.request(b))
	both := s.waits(s.request(a, b))

	s.release(holdA) // the first turn in vain: b is taken
	holdA = s.runs(s.request(a))
	s.release(holdB) // the second: a is taken
	lateB := s.waits(s.request(b))
	s.release(holdA)
	lease := both.admitted()
	lateB.stillWaits()
	s.release(lease)
	s.release(lateB.admitted())
	s.free(a, b)
}

// failover releases what the first attempt held and asks again.
func failover(s *suite) {
	a, b := concurrency("key:a", 1), concurrency("key:b", 1)
	req := s.choice([]policy.Scope{a})
	first, other := s.runs(req), s.runs(s.request(b))
	later := s.waits(s.request(b))
	s.release(first)

	again := s.choice([]policy.Scope{b})
	again.Request, again.Attempt = req.Request, 2
	second := s.waits(again)
	s.release(other)
	lease := second.admitted()
	later.stillWaits()
	s.release(lease)
	s.release(later.admitted())
}

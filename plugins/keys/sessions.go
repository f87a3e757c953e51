package keys

import (
	"sync"
	"time"

	"github.com/usherproxy/usher/policy"
)

// sessions remembers which candidate served each session last. Its zero value
// remembers none. It is a matter of order alone, so it may forget.
type sessions struct {
	mu     sync.Mutex
	served aging[uint64, uint64] // session to hash of the candidate

	// expected are the sessions of requests whose attempts have not ended well.
	expected aging[string, uint64]
}

// sessionOf returns what stands for the session and the model of a request.
func sessionOf(req *policy.Request) uint64 { return hash(hash(0, req.Model), req.Affinity) }

// find returns the hash of the candidate that served a session last, or 0.
func (s *sessions) find(now time.Time, session uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served.get(now, session)
}

// expect notes that a request belongs to a session.
func (s *sessions) expect(now time.Time, request string, session uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected.put(now, request, session)
}

// ended binds the session of a request to the candidate that served it.
func (s *sessions) ended(now time.Time, res *policy.AttemptResult) {
	if res.Disposition != policy.OK {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if session := s.expected.get(now, res.RequestID); session != 0 {
		s.served.put(now, session, hash(0, res.Candidate.ID))
	}
}

// An aging map forgets what was not used for a while, and what is too much.
// It has two halves: what is used goes to the young one, and the old one is
// forgotten when the young one takes its place.
type aging[K comparable, V comparable] struct {
	young, old map[K]V
	since      time.Time // when young was begun
}

const (
	// agingAfter is how long a half is used. What is in use stays for so long
	// at least, and for twice as long at most.
	agingAfter = 30 * time.Minute

	// agingSize bounds a half.
	agingSize = 1 << 16
)

// get returns the value of k, or the zero value.
func (a *aging[K, V]) get(now time.Time, k K) V {
	var zero V
	a.age(now)
	if v, ok := a.young[k]; ok {
		return v
	}
	if v, ok := a.old[k]; ok {
		a.young[k] = v
		return v
	}
	return zero
}

func (a *aging[K, V]) put(now time.Time, k K, v V) {
	a.age(now)
	a.young[k] = v
}

func (a *aging[K, V]) age(now time.Time) {
	gone := now.Sub(a.since)
	switch {
	case a.young == nil || gone >= 2*agingAfter:
		a.young, a.old, a.since = map[K]V{}, nil, now
	case gone >= agingAfter || len(a.young) >= agingSize:
		a.young, a.old, a.since = map[K]V{}, a.young, now
	}
}

package keys

import (
	"maps"
	"sync/atomic"
	"time"

	"github.com/usherproxy/usher/policy"
)

// places remembers the slots of whole lists of candidates, so that a list that
// was seen before costs no look-up. The zero value remembers none.
type places struct {
	lists atomic.Pointer[map[listID]*list]
}

// A listID tells lists of candidates apart, as a guess.
type listID struct {
	model, first string
	n            int
}

// A list is the slots of a list of candidates. It is verified when it is used.
type list struct {
	slots  []*slot
	usedAt atomic.Int64 // in Unix seconds
}

const (
	// maxLists bounds how many lists are remembered.
	maxLists = 256

	// leastList is the length from which on a list is remembered.
	leastList = 4
)

func listIDOf(req *policy.SelectRequest) listID {
	return listID{req.Request.Model, req.Candidates[0].ID, len(req.Candidates)}
}

// find returns the slots of the list that may be that of the request, or nil.
func (p *places) find(now time.Time, req *policy.SelectRequest) []*slot {
	lists := p.lists.Load()
	if len(req.Candidates) < leastList || lists == nil {
		return nil
	}
	l := (*lists)[listIDOf(req)]
	if l == nil {
		return nil
	}
	if unix := now.Unix(); l.usedAt.Load() != unix {
		l.usedAt.Store(unix)
	}
	return l.slots
}

// keepLocked remembers the slots of a list. The caller does not change them any more,
// and holds the mutex of the state.
func (p *places) keepLocked(now time.Time, req *policy.SelectRequest, slots []*slot) {
	if len(slots) < leastList {
		return
	}
	var next map[listID]*list
	if lists := p.lists.Load(); lists != nil && len(*lists) < maxLists {
		next = maps.Clone(*lists)
	} else {
		next = make(map[listID]*list)
	}
	l := &list{slots: slots}
	l.usedAt.Store(now.Unix())
	next[listIDOf(req)] = l
	p.lists.Store(&next)
}

// sweep forgets the lists that were not used since an instant, and returns the
// slots of the others.
func (p *places) sweep(since time.Time) map[*slot]bool {
	used := map[*slot]bool{}
	lists := p.lists.Load()
	if lists == nil {
		return used
	}
	next := maps.Clone(*lists)
	maps.DeleteFunc(next, func(_ listID, l *list) bool { return l.usedAt.Load() < since.Unix() })
	for _, l := range next {
		for _, sl := range l.slots {
			used[sl] = true
		}
	}
	p.lists.Store(&next)
	return used
}

// slotsFor returns the slots of the candidates of a request.
func (s *state) slotsFor(now time.Time, req *policy.SelectRequest) []*slot {
	slots := s.places.find(now, req)
	for i := range req.Candidates {
		if i >= len(slots) || !slots[i].is(&req.Candidates[i]) {
			return s.bindAll(now, req)
		}
	}
	return slots
}

func (s *state) bindAll(now time.Time, req *policy.SelectRequest) []*slot {
	slots := make([]*slot, len(req.Candidates))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range req.Candidates {
		slots[i] = s.bindLocked(now, &req.Candidates[i])
	}
	s.places.keepLocked(now, req, slots)
	return slots
}

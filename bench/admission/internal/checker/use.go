package checker

import (
	"fmt"
	"math"
	"slices"

	"github.com/usherproxy/usher/bench/admission/internal/events"
)

// never is an instant after all others.
const never = math.MaxInt64

// A use is one attempt of a request: all that its caller has seen of it.
type use struct {
	id                        string
	attempt, replica          int
	priority                  int
	own                       []events.Scope
	candidates                [][]events.Scope
	ask, wait, run, end, left int64 // never, if it did not happen
	candidate                 int

	// The request has had its place in line since an instant between these.
	placeFrom, placeTo int64
}

func (u *use) String() string { return fmt.Sprintf("%s/%d", u.id, u.attempt) }

// known returns when the store knew of u at the latest.
func (u *use) known() int64 {
	if at := min(u.wait, u.run); at < never {
		return at
	}
	if u.left < never {
		return u.left + inFlight
	}
	return never
}

// inFlight is how long what a caller asked may be on its way when the caller has
// left.
const inFlight = int64(2e9)

// takes returns the scopes that u runs on.
func (u *use) takes() []events.Scope { return u.needs(u.candidate) }

// needs returns what u needs with a candidate and holds while it runs, each scope once.
func (u *use) needs(candidate int) []events.Scope {
	return slices.DeleteFunc(u.all(candidate), func(s events.Scope) bool { return s.Window > 0 })
}

// rates returns the windows that u counts in with a candidate.
func (u *use) rates(candidate int) []events.Scope {
	return slices.DeleteFunc(u.all(candidate), func(s events.Scope) bool { return s.Window == 0 })
}

func (u *use) all(candidate int) []events.Scope {
	return unique(append(slices.Clone(u.own), u.candidates[candidate]...))
}

func unique(scopes []events.Scope) []events.Scope {
	var out []events.Scope
	for _, s := range scopes {
		if !slices.ContainsFunc(out, func(o events.Scope) bool { return o.ID == s.ID && o.Window == s.Window }) {
			out = append(out, s)
		}
	}
	return out
}

func holds(scopes []events.Scope, id string) bool {
	return slices.ContainsFunc(scopes, func(s events.Scope) bool { return s.ID == id })
}

// A span is a stretch of time.
type span struct{ from, to int64 }

// A story is all that happened.
type story struct {
	uses    []*use
	audits  []events.Event
	frozen  map[int][]span // by replica, with the moment afterwards that it has to learn of it
	gone    map[int]int64  // when each replica was killed
	trouble []span         // when nothing can be said of what is free
}

type attempt struct {
	id string
	n  int
}

// tell sorts out events.
func tell(all []events.Event, p Patience) (*story, error) {
	s := &story{frozen: map[int][]span{}, gone: map[int]int64{}}
	byName := map[attempt]*use{}
	last := int64(0)
	for _, e := range all {
		last = e.At
		if e.Kind == events.Ask {
			u := &use{
				id: e.ID, attempt: e.Attempt, replica: e.Replica, priority: e.Priority, own: e.Own, candidates: e.Candidates,
				ask: e.At, wait: never, run: never, end: never, left: never,
			}
			if byName[attempt{e.ID, e.Attempt}] != nil {
				return nil, fmt.Errorf("%v was asked twice", u)
			}
			byName[attempt{e.ID, e.Attempt}] = u
			s.uses = append(s.uses, u)
			continue
		}
		if e.ID == "" {
			s.note(e, p)
			continue
		}
		u := byName[attempt{e.ID, e.Attempt}]
		if u == nil {
			return nil, fmt.Errorf("%s of %s/%d, which was never asked", e.Kind, e.ID, e.Attempt)
		}
		u.note(e)
	}
	for _, u := range s.uses {
		u.finish(s.gone[u.replica], last)
		u.place(byName[attempt{u.id, 1}])
	}
	return s, nil
}

func (u *use) note(e events.Event) {
	switch e.Kind {
	case events.Wait:
		u.wait = min(u.wait, e.At)
	case events.Run:
		u.run, u.candidate = e.At, e.Candidate
	case events.End:
		u.end = e.At
	case events.Cancel, events.Left, events.Refuse:
		u.left = min(u.left, e.At)
	}
}

// finish ends what has no end. Gone is when the replica was killed, or 0.
func (u *use) finish(gone, last int64) {
	if gone == 0 {
		gone = last
	}
	if u.run == never {
		u.left = min(u.left, gone)
		return
	}
	u.left, u.end = never, min(u.end, max(gone, u.run))
}

// place finds when the request got its place.
func (u *use) place(first *use) {
	u.placeFrom, u.placeTo = u.ask, u.known()
	if first != nil {
		u.placeFrom, u.placeTo = first.ask, first.known()
	}
}

// note notes what happened to a replica or to the database.
func (s *story) note(e events.Event, p Patience) {
	switch e.Kind {
	case events.Audit:
		s.audits = append(s.audits, e)
	case events.Stop:
		for _, u := range s.uses {
			if u.replica == e.Replica && u.run == never {
				u.left = min(u.left, e.At)
			}
		}
	case events.Killed:
		s.gone[e.Replica] = e.At
		s.trouble = append(s.trouble, span{e.At, e.At + int64(p.Dead)})
	case events.Frozen:
		s.frozen[e.Replica] = append(s.frozen[e.Replica], span{e.At, never})
		s.trouble = append(s.trouble, span{e.At, never})
	case events.Thawed:
		list := s.frozen[e.Replica]
		list[len(list)-1].to = e.At + int64(p.Fence)
		s.recovered(e.At + int64(p.Dead))
	case events.Trouble:
		s.trouble = append(s.trouble, span{e.At, never})
	case events.Recovered:
		s.recovered(e.At + int64(p.Dead))
	}
}

func (s *story) recovered(at int64) {
	for i := range s.trouble {
		s.trouble[i].to = min(s.trouble[i].to, at)
	}
}

// disturbed reports whether the replica of u was stopped or killed while u waited.
func (s *story) disturbed(u *use) bool {
	if gone, ok := s.gone[u.replica]; ok && gone <= min(u.run, u.left) {
		return true
	}
	return slices.ContainsFunc(s.frozen[u.replica], func(f span) bool { return f.from < min(u.run, u.left) && f.to > u.wait })
}

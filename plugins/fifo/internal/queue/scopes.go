package queue

import (
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// scopeKey identifies a scope.
type scopeKey struct {
	id     string
	kind   policy.ScopeKind
	window time.Duration
}

// minScopes is how many scopes may be kept before it is worth to look for those
// that are not used any more.
const minScopes = 1024

// resolveAll sets the scopes of t, in space that is valid until the next call.
func (q *Queue) resolveAll(t *Ticket) {
	q.own = q.resolve(q.own[:0], t.request.Scopes, t.request.Arrival)
	for i := range t.candidates {
		if i == len(q.ranked) {
			q.ranked = append(q.ranked, nil)
		}
		q.ranked[i] = q.resolve(q.ranked[i][:0], t.candidates[i].Scopes, t.request.Arrival)
	}
	t.own, t.ranked = q.own, q.ranked[:len(t.candidates)]
}

// cloneAll copies a list of lists.
func cloneAll(lists [][]*scope) [][]*scope {
	lists = slices.Clone(lists)
	for i := range lists {
		lists[i] = slices.Clone(lists[i])
	}
	return lists
}

// resolve appends the scopes that specs name to list, and notes their limits as
// of the given arrival.
func (q *Queue) resolve(list []*scope, specs []policy.Scope, arrival int64) []*scope {
	for i := range specs {
		spec := &specs[i]
		s := q.scope(spec)
		if arrival >= s.seen {
			s.seen = arrival
			if spec.Limit != s.limit {
				s.limit = spec.Limit
				q.touch(s)
				if s.claimed() {
					q.recall(s)
				}
			}
		}
		list = append(list, s)
	}
	return list
}

// scope returns the scope that spec names.
func (q *Queue) scope(spec *policy.Scope) *scope {
	key := scopeKey{spec.ID, spec.Kind, spec.Window}
	s, ok := q.scopes[key]
	if !ok {
		q.scopeSerial++
		s = &scope{
			id: q.scopeSerial, name: spec.ID, kind: spec.Kind, limit: spec.Limit,
			window: window{span: spec.Window}, alarm: alarm{index: -1},
		}
		q.scopes[key] = s
	}
	return s
}

// sweep forgets idle scopes when there are twice as many scopes as the last
// sweep left.
func (q *Queue) sweep(now time.Duration) {
	if len(q.scopes) < q.sweepAt {
		return
	}
	for key, s := range q.scopes {
		if s.idle(now) {
			delete(q.scopes, key)
		}
	}
	q.sweepAt = max(minScopes, 2*len(q.scopes))
}

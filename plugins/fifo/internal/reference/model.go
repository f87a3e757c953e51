package reference

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A Model holds the requests that wait and those that run. The zero value is
// empty and ready to use.
type Model struct {
	Waiting []*Entry // in their order
	Running []*Entry

	serial int
	limits map[key]limit
	taken  []taken
	loans  []*loan
	kinds  map[string][]key // what the entries of one kind wait for
	broken []error

	known func(e *Entry, scope string) bool // who must not be passed now, if it is set
}

// An Entry is a request that waits or runs.
type Entry struct {
	Request   *policy.Request
	Rules     queue.Rules
	Candidate int // once it runs

	candidates []policy.Candidate
	serial     int
	passes     int
	lease      map[key]int64
	known      string // kind, once it was asked for
	may        []key  // uses, once they were asked for
}

type key struct {
	id     string
	kind   policy.ScopeKind
	window time.Duration
}

type limit struct{ n, seen int64 }

// taken is what was taken of a rate scope.
type taken struct {
	key    key
	by     *Entry
	at     time.Time
	amount int64
}

// Admit decides on a request. It returns its entry and an empty reason, or the
// reason why it is refused.
func (m *Model) Admit(now time.Time, req *policy.AdmitRequest, rules queue.Rules) (*Entry, policy.Reason) {
	return m.AdmitFor(now, 0, req, rules)
}

// AdmitFor decides on a request that a holder of loans asks for.
func (m *Model) AdmitFor(now time.Time, holder int64, req *policy.AdmitRequest, rules queue.Rules) (*Entry, policy.Reason) {
	m.serial++
	e := &Entry{Request: req.Request, Rules: rules, candidates: req.Candidates, serial: m.serial}
	m.note(e)
	m.Settle(now)
	candidate, blockers := m.judge(now, e)
	if candidate >= 0 {
		m.grant(now, e, candidate)
		return e, ""
	}
	if first := m.first(e.kind()); first != nil && first.before(e) {
		blockers = m.kinds[e.kind()]
	}
	switch {
	case req.NoWait && !m.lentToOthers(m.judged(now, e), holder):
		return nil, "busy"
	case rules.QueueLimit > 0 && !slices.ContainsFunc(blockers, func(k key) bool { return m.waiting(k) < rules.QueueLimit }):
		return nil, policy.ReasonQueueFull
	}
	m.Waiting = append(m.Waiting, e)
	slices.SortFunc(m.Waiting, compare)
	if m.first(e.kind()) == e {
		m.kinds[e.kind()] = blockers
	}
	m.Settle(now)
	return e, ""
}

// judged returns what e would wait for, of itself.
func (m *Model) judged(now time.Time, e *Entry) []key {
	_, blockers := m.judge(now, e)
	return blockers
}

// Resume lets a request go on that has lost its lease, on its one candidate, if the
// concurrency scopes have room. It reports whether it did.
func (m *Model) Resume(now time.Time, req *policy.AdmitRequest, rules queue.Rules) (*Entry, bool) {
	m.serial++
	e := &Entry{Request: req.Request, Rules: rules, candidates: req.Candidates, serial: m.serial, lease: map[key]int64{}}
	m.note(e)
	m.Settle(now)
	for _, k := range e.uses() {
		if k.kind != policy.ScopeConcurrency {
			continue
		}
		if m.used(now, k)+1 > m.limits[k].n {
			return nil, false
		}
		e.lease[k] = 1
	}
	m.Running = append(m.Running, e)
	return e, true
}

// Cancel ends the wait of e.
func (m *Model) Cancel(now time.Time, e *Entry) {
	m.leave(e)
	m.Settle(now)
}

// Release ends the lease of e.
func (m *Model) Release(now time.Time, e *Entry, usage *policy.Usage) {
	m.end(e, usage)
	m.Settle(now)
}

func (m *Model) end(e *Entry, usage *policy.Usage) {
	m.Running = slices.DeleteFunc(m.Running, func(o *Entry) bool { return o == e })
	for i, t := range m.taken {
		if t.by == e && t.key.kind == policy.ScopeTokens && usage != nil {
			m.taken[i].amount = usage.Total()
		}
	}
}

// Settle lets those start who can.
func (m *Model) Settle(now time.Time) {
	for changed := true; changed; {
		changed = false
		for _, e := range slices.Clone(m.Waiting) {
			if m.first(e.kind()) == e && m.try(now, e) {
				changed = true
			}
		}
	}
	m.calm()
}

// try looks at e if something that it waits for is open. It reports whether
// that changed anything.
func (m *Model) try(now time.Time, e *Entry) bool {
	if !slices.ContainsFunc(m.kinds[e.kind()], func(k key) bool { return m.open(now, e, k) }) {
		return false
	}
	candidate, blockers := m.judge(now, e)
	switch {
	case candidate >= 0:
		m.leave(e)
		m.grant(now, e, candidate)
	case e.Rules.Order == queue.OrderStrict:
		return false
	default:
		m.kinds[e.kind()] = blockers
		e.passes++
	}
	return true
}

// judge returns the candidate that e can start on, or what it waits for.
func (m *Model) judge(now time.Time, e *Entry) (candidate int, blockers []key) {
	closed := func(k key) bool { return !m.open(now, e, k) }
	for i, c := range e.candidates {
		need := slices.Concat(keys(e.Request.Scopes), keys(c.Scopes))
		first := slices.IndexFunc(need, closed)
		if first < 0 {
			return i, nil
		}
		blockers = append(blockers, need[first])
	}
	if e.Rules.Order == queue.OrderStrict {
		blockers = append(blockers, e.uses()...)
	}
	return -1, unique(blockers)
}

// open reports whether k has room for e and nobody earlier waits for it.
func (m *Model) open(now time.Time, e *Entry, k key) bool {
	if m.used(now, k)+m.keptFrom(e, k)+m.amount(e, k) > m.limits[k].n {
		return false
	}
	return !slices.ContainsFunc(m.Waiting, func(o *Entry) bool {
		return o != e && o.before(e) && slices.Contains(m.kinds[o.kind()], k)
	})
}

func (m *Model) used(now time.Time, k key) (sum int64) {
	for _, e := range m.Running {
		if k.kind == policy.ScopeConcurrency {
			sum += e.lease[k]
		}
	}
	for _, l := range m.loans {
		if l.key == k {
			sum += l.n
		}
	}
	for _, t := range m.taken {
		if t.key == k && now.Before(t.at.Add(k.window)) {
			sum += t.amount
		}
	}
	return sum
}

// keptFrom returns how much of k is kept for another who comes before e.
func (m *Model) keptFrom(e *Entry, k key) int64 {
	if o := m.keeper(k); o != nil && o.before(e) {
		return m.amount(o, k)
	}
	return 0
}

// keeper returns the one for whom room is kept in k, or nil.
func (m *Model) keeper(k key) *Entry {
	for _, e := range m.Waiting {
		if slices.Contains(e.keeps(), k) {
			return e
		}
	}
	return nil
}

func (m *Model) amount(e *Entry, k key) int64 {
	return policy.Scope{Kind: k.kind, Limit: m.limits[k].n}.Amount(e.Request)
}

func (m *Model) grant(now time.Time, e *Entry, candidate int) {
	e.Candidate = candidate
	e.lease = make(map[key]int64)
	for _, k := range slices.Concat(keys(e.Request.Scopes), keys(e.candidates[candidate].Scopes)) {
		e.lease[k] = m.amount(e, k)
	}
	for k, amount := range e.lease {
		if k.kind != policy.ScopeConcurrency {
			m.taken = append(m.taken, taken{k, e, now, amount})
		}
	}
	m.Running = append(m.Running, e)
	m.checkGrant(now, e)
}

func (m *Model) leave(e *Entry) {
	m.Waiting = slices.DeleteFunc(m.Waiting, func(o *Entry) bool { return o == e })
	if m.first(e.kind()) == nil {
		delete(m.kinds, e.kind())
	}
}

// note keeps the limits that came with the latest arrival.
func (m *Model) note(e *Entry) {
	if m.limits == nil {
		m.limits, m.kinds = make(map[key]limit), make(map[string][]key)
	}
	scopes := slices.Clone(e.Request.Scopes)
	for _, c := range e.candidates {
		scopes = append(scopes, c.Scopes...)
	}
	for _, s := range scopes {
		if k := keyOf(s); e.Request.Arrival >= m.limits[k].seen {
			m.limits[k] = limit{s.Limit, e.Request.Arrival}
		}
	}
}

// first returns the first of a kind that waits, or nil.
func (m *Model) first(kind string) *Entry {
	i := slices.IndexFunc(m.Waiting, func(e *Entry) bool { return e.kind() == kind })
	if i < 0 {
		return nil
	}
	return m.Waiting[i]
}

// waiting returns how many wait for k.
func (m *Model) waiting(k key) (n int) {
	for _, e := range m.Waiting {
		if slices.Contains(m.kinds[e.kind()], k) {
			n++
		}
	}
	return n
}

// Position returns the place of e among those that wait for the same.
func (m *Model) Position(e *Entry) int {
	k, position := m.kinds[e.kind()][0], 1
	for _, o := range m.Waiting {
		if o.before(e) && slices.Contains(m.kinds[o.kind()], k) {
			position++
		}
	}
	return position
}

func compare(a, b *Entry) int {
	return cmp.Or(
		-cmp.Compare(a.Request.Priority, b.Request.Priority),
		cmp.Compare(a.Request.Arrival, b.Request.Arrival),
		cmp.Compare(a.serial, b.serial),
	)
}

func (e *Entry) before(o *Entry) bool { return compare(e, o) < 0 }

// kind tells what e needs: entries of the same kind stand in one line.
func (e *Entry) kind() string {
	if e.known == "" {
		e.known = e.describe()
	}
	return e.known
}

func (e *Entry) describe() string {
	sets := make(map[string]bool)
	for _, c := range e.candidates {
		sets[describe(c.Scopes)] = true
	}
	return fmt.Sprint(e.Rules.Order, describe(e.Request.Scopes), slices.Sorted(maps.Keys(sets)))
}

func describe(scopes []policy.Scope) string {
	var words []string
	for _, k := range unique(keys(scopes)) {
		words = append(words, fmt.Sprint(k))
	}
	slices.Sort(words)
	return fmt.Sprint(words)
}

// uses returns all that e may use.
func (e *Entry) uses() []key {
	if e.may == nil {
		all := keys(e.Request.Scopes)
		for _, c := range e.candidates {
			all = append(all, keys(c.Scopes)...)
		}
		e.may = unique(all)
	}
	return e.may
}

// keeps returns the scopes in which room is to be kept for e, which waits.
func (e *Entry) keeps() []key {
	if e.Rules.MaxPasses == 0 || e.passes < e.Rules.MaxPasses {
		return nil
	}
	return slices.Concat(keys(e.Request.Scopes), keys(e.candidates[0].Scopes))
}

func keyOf(s policy.Scope) key { return key{s.ID, s.Kind, s.Window} }

func keys(scopes []policy.Scope) []key {
	all := make([]key, len(scopes))
	for i, s := range scopes {
		all[i] = keyOf(s)
	}
	return all
}

// unique returns list with each member once, in the order of its first use.
func unique(list []key) []key {
	var out []key
	for _, k := range list {
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

package postgres

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// rulesVersion is the number of the rules by which entries are applied. Replicas
// that would decide differently must not share a log: a change of what the queue
// decides, or of what it stores, needs another number.
const rulesVersion = 3

// A machine is what the log has led to. Machines that have applied the same
// entries are equal.
type machine struct {
	seq    int64
	at     time.Time // of the last entry
	last   *entry    // without its commands, or nil if it was not read
	queue  *queue.Queue
	owners map[*queue.Ticket]int64 // the replica of each ticket
	unread int                     // bytes of entries since a state was to be saved
}

// A command is one of its fields.
type command struct {
	Admit   *queue.Record // a request may start or has to wait
	Wait    *queue.Record // it had a place or a lease before
	Run     *queue.Record // it runs on its one candidate
	Resume  *queue.Record // it ran before its replica was taken for dead
	Release *release      // a lease ends
	Forget  *name         // a wait, or a lease that nobody used, ends
	Hand    *hand         // a lease ends, and another request runs on what it held
	Give    []queue.Loan  // what the replica was lent goes back
}

type name struct {
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
}

type release struct {
	name
	Tokens *int64 // nil if it is not known
	Keep   bool   // the replica would like to be lent what it held
}

// A result is what an entry's command has led to.
type result struct {
	ticket *queue.Ticket
	err    error
	kept   bool // what the lease held is lent to its replica
}

// An outcome is what an entry has led to.
type outcome struct {
	results  []result        // of its commands
	granted  []*queue.Ticket // those who run because of it
	recalled []recall
}

// A recall asks a replica to return what it does not use of a scope.
type recall struct {
	scope   string
	replica int64
}

// apply applies an entry.
func (m *machine) apply(e entry) (out outcome, err error) {
	if e.Seq != m.seq+1 {
		return out, fmt.Errorf("entry %d follows %d", e.Seq, m.seq)
	}
	commands, err := decode(e.Commands)
	if err != nil {
		return out, fmt.Errorf("entry %d: %w", e.Seq, err)
	}
	m.seq, m.at = e.Seq, time.UnixMicro(e.At)
	m.last = &entry{Seq: e.Seq, At: e.At, Replica: e.Replica, Op: e.Op}
	m.unread += entryOverhead + len(e.Commands)
	out.granted = slices.Clone(m.queue.Tick(m.at))
	for _, id := range e.Gone {
		out.granted = append(out.granted, m.bury(id)...)
	}
	out.results = make([]result, len(commands))
	keep := make(map[int][]string)
	for i, c := range commands {
		if c.Release != nil && c.Release.Keep {
			keep[i] = m.holds(e, c.Release.name)
		}
		var more []*queue.Ticket
		out.results[i], more = m.do(e, c)
		out.granted = append(out.granted, more...)
	}
	for i := range commands { // what nobody has taken meanwhile
		out.results[i].kept = keep[i] != nil && m.queue.Lend(e.Replica, keep[i])
	}
	m.queue.Recalled(func(scope string, replica int64) { out.recalled = append(out.recalled, recall{scope, replica}) })
	return out, nil
}

// is reports whether e and o are the same entry, whatever they bring.
func (e *entry) is(o entry) bool {
	return e.Seq == o.Seq && e.At == o.At && e.Replica == o.Replica && e.Op == o.Op
}

// fresh returns those of entries that m has not applied, and whether the log that
// they are of is the one that has led to m. They were read beginning with after,
// which is nil if nothing was read before.
func (m *machine) fresh(entries []entry, after *entry) ([]entry, bool) {
	if after != nil && (len(entries) == 0 || !after.is(entries[0])) {
		return entries, false
	}
	for len(entries) > 0 && entries[0].Seq <= m.seq {
		if m.last != nil && m.last.Seq == entries[0].Seq && !m.last.is(entries[0]) {
			return entries, false
		}
		entries = entries[1:]
	}
	return entries, true
}

// bury ends all tickets of a replica, first those who wait, so that none of them
// takes what the others leave. What ran has used its rates.
func (m *machine) bury(replica int64) (granted []*queue.Ticket) {
	for _, t := range m.of(replica) {
		if !t.Running() {
			granted = append(granted, m.forget(t)...)
		}
	}
	for _, t := range m.of(replica) {
		granted = append(granted, m.release(t, nil)...)
	}
	return append(granted, m.queue.ReturnAll(m.at, replica)...)
}

// of returns the tickets of a replica, in the same order everywhere.
func (m *machine) of(replica int64) []*queue.Ticket {
	var list []*queue.Ticket
	for t, owner := range m.owners {
		if owner == replica {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, compareNames)
	return list
}

func compareNames(a, b *queue.Ticket) int {
	return cmp.Or(cmp.Compare(a.ID(), b.ID()), cmp.Compare(a.Attempt(), b.Attempt()))
}

func (m *machine) forget(t *queue.Ticket) []*queue.Ticket {
	delete(m.owners, t)
	return m.queue.Forget(m.at, t)
}

func (m *machine) release(t *queue.Ticket, usage *policy.Usage) []*queue.Ticket {
	delete(m.owners, t)
	return m.queue.Release(m.at, t, usage)
}

// usage returns the tokens as a queue wants to be told of them.
func (r *release) usage() *policy.Usage {
	if r.Tokens == nil {
		return nil
	}
	return &policy.Usage{InputTokens: *r.Tokens}
}

func (m *machine) do(e entry, c command) (result, []*queue.Ticket) {
	switch {
	case c.Admit != nil:
		c.Admit.Arrival = place(e, c.Admit.Arrival)
		t, granted, err := m.queue.AdmitFor(m.at, e.Replica, c.Admit.Request(), queue.Rules(c.Admit.Rules))
		if err == nil {
			m.owners[t] = e.Replica
		}
		return result{ticket: t, err: err}, granted
	case c.Wait != nil:
		return m.restore(e, c.Wait, false)
	case c.Run != nil:
		return m.restore(e, c.Run, true)
	case c.Resume != nil:
		return m.resume(e, c.Resume)
	case c.Release != nil:
		if t := m.find(e, c.Release.name); t != nil {
			return result{}, m.drop(t, c.Release.usage())
		}
	case c.Hand != nil:
		return m.hand(e, c.Hand)
	case c.Forget != nil:
		if t := m.find(e, *c.Forget); t != nil {
			return result{}, m.forget(t)
		}
	case c.Give != nil:
		return result{}, m.queue.Return(m.at, e.Replica, c.Give)
	}
	return result{}, nil
}

// holds returns what the lease of that name holds, if it can be lent to the replica
// that appended e.
func (m *machine) holds(e entry, n name) []string {
	if t := m.find(e, n); t != nil {
		return t.Holds()
	}
	return nil
}

// find returns the ticket of that name if it is one of the replica that appended
// e, or nil.
func (m *machine) find(e entry, n name) *queue.Ticket {
	if t := m.queue.Find(n.ID, n.Attempt); t != nil && m.owners[t] == e.Replica {
		return t
	}
	return nil
}

// restore takes over a request that ran or waited before. The replica that it
// ran or waited in may still be believed to live.
func (m *machine) restore(e entry, r *queue.Record, runs bool) (result, []*queue.Ticket) {
	r.Arrival = place(e, r.Arrival)
	var replaced []*queue.Ticket
	if t := m.queue.Find(r.ID, r.Attempt); t != nil && m.owners[t] != e.Replica {
		r.Arrival = t.Arrival()
		replaced = append(replaced, t)
	}
	var running []policy.Held
	var waiting []policy.AdmitRequest
	req := r.Request()
	if runs {
		running = append(running, policy.Held{Request: req.Request, Attempt: r.Attempt, Candidate: req.Candidates[0]})
	} else {
		waiting = append(waiting, *req)
	}
	ran, waits, granted, err := m.queue.Restore(m.at, running, waiting, queue.Rules(r.Rules), replaced...)
	if err != nil {
		return result{err: err}, granted
	}
	for _, t := range replaced {
		delete(m.owners, t)
	}
	t := slices.Concat(ran, waits)[0]
	m.owners[t] = e.Replica
	return result{ticket: t}, granted
}

// resume lets a request go on that ran before, if there is room.
func (m *machine) resume(e entry, r *queue.Record) (result, []*queue.Ticket) {
	r.Arrival = place(e, r.Arrival)
	req := r.Request()
	held := policy.Held{Request: req.Request, Attempt: r.Attempt, Candidate: req.Candidates[0]}
	t, granted, err := m.queue.Resume(m.at, held, queue.Rules(r.Rules))
	if err == nil {
		m.owners[t] = e.Replica
	}
	return result{ticket: t, err: err}, granted
}

// placesPerEntry is how many requests may have their places between two entries.
const placesPerEntry = 1 << 20

// place returns the arrival of a request for all replicas, whose order is that of
// the entries. One that is positive is known already; others count from the end
// of their entry.
func place(e entry, arrival int64) int64 {
	if arrival > 0 {
		return arrival
	}
	return e.Seq*placesPerEntry + max(arrival, 1-placesPerEntry)
}

// A state is a machine as it is stored.
type state[Q any] struct {
	At     int64            `json:"at"`
	Queue  Q                `json:"queue"`
	Owners map[int64][]name `json:"owners"`
}

// loadMachine returns the machine of which data is the state at seq.
func loadMachine(seq int64, data []byte) (*machine, error) {
	m := &machine{seq: seq, queue: queue.New(time.Unix(0, 0).UTC()), owners: make(map[*queue.Ticket]int64)}
	if len(data) == 0 {
		return m, nil
	}
	var s state[json.RawMessage]
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("state of the log: %w", err)
	}
	var err error
	if m.queue, err = queue.Load(s.Queue); err != nil {
		return nil, err
	}
	m.at = time.UnixMicro(s.At)
	for replica, names := range s.Owners {
		for _, n := range names {
			m.owners[m.queue.Find(n.ID, n.Attempt)] = replica
		}
	}
	return m, nil
}

// state returns what m is now, as JSON stores it.
func (m *machine) state() *state[*queue.Snapshot] {
	s := &state[*queue.Snapshot]{At: m.at.UnixMicro(), Queue: m.queue.Snapshot(), Owners: make(map[int64][]name)}
	for _, t := range slices.SortedFunc(maps.Keys(m.owners), compareNames) {
		s.Owners[m.owners[t]] = append(s.Owners[m.owners[t]], name{t.ID(), t.Attempt()})
	}
	return s
}

// The state is saved when the entries since the last time are worth it: when
// they take more room than the state itself may, and at least that.
const (
	saveAfter     = 128 << 10
	savePerTicket = 1 << 10
	entryOverhead = 64
)

// worthSaving reports, once, that the state should be saved. It does so at the
// same entries everywhere, for whoever appended the entry.
func (m *machine) worthSaving() bool {
	if m.unread < saveAfter+savePerTicket*len(m.owners) {
		return false
	}
	m.unread = 0
	return true
}

package postgres

import (
	"slices"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
)

// A request is a command for the next step and, if somebody waits for its
// result, whose it is.
type request struct {
	command
	call *call
}

// A batch is the commands of one step. It stays the same however often the step
// is tried.
type batch struct {
	op       int64 // 0 if there are no commands
	requests []request
	commands []byte
	arrival  int64 // the last one that gets its place by it
	publish  bool  // others wait, and hear of it
}

// maxBatch is how many commands go with one step.
const maxBatch = 1024

// take returns the batch of the next step.
func (s *Store) take(op int64) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &batch{}
	n := min(len(s.pending), maxBatch)
	s.pressing = n < len(s.pending)
	select {
	case <-s.pressed:
	default:
	}
	if time.Now().Before(s.holdUntil) {
		n = min(n, s.runs())
	}
	for _, r := range s.pending[:n] {
		switch c := r.call; {
		case c == nil:
		case c.state == over && !c.sent:
			continue // has left before anybody knew of it
		case r.Release != nil:
			r.Release.Keep = s.keeps(c)
		case r.Forget != nil:
		default:
			c.sent = true
			b.arrival = max(b.arrival, c.record.Arrival)
			s.bring(c)
		}
		b.requests = append(b.requests, r)
	}
	s.pending = s.pending[n:]
	if give := s.credits.due(); len(give) > 0 {
		b.requests = slices.Insert(b.requests, 0, request{command: command{Give: give}})
	}
	if len(b.requests) == 0 {
		return b
	}
	b.op = op
	b.publish = s.listening && s.machine.queue.Waiting() > s.waiting
	commands := make([]command, len(b.requests))
	for i, r := range b.requests {
		if record := r.record(); record != nil {
			record.Arrival = s.placeOf(r.call, b)
		}
		commands[i] = r.command
	}
	b.commands = encode(commands)
	return b
}

// runs returns how many commands at the beginning of the pending ones say what
// runs.
func (s *Store) runs() int {
	i := slices.IndexFunc(s.pending, func(r request) bool { return r.Run == nil && r.Resume == nil })
	if i < 0 {
		return len(s.pending)
	}
	return i
}

// record returns a copy of the record that r brings, or nil.
func (r *request) record() *queue.Record {
	for _, p := range []**queue.Record{&r.Admit, &r.Wait, &r.Run, &r.Resume} {
		if *p != nil {
			record := **p
			*p = &record
			return &record
		}
	}
	return nil
}

// placeOf returns the place of c, or its distance from the end of the entry
// that b becomes.
func (s *Store) placeOf(c *call, b *batch) int64 {
	switch arrival := c.record.Arrival; {
	case c.place > 0:
		return c.place
	case arrival > s.places.last() || arrival <= 0:
		return arrival - b.arrival
	default:
		return s.places.find(arrival)
	}
}

// read applies the entries that a step has read after the given one, and reports
// whether b is among them. It returns the replicas to wake.
func (s *Store) read(entries []entry, after *entry, b *batch) (wake []int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, same := s.machine.fresh(entries, after)
	if !same {
		s.holdUntil = time.Now().Add(holdFor)
		return nil, errLost
	}
	others := make(map[int64]bool)
	seen := b.op == 0
	for _, e := range entries {
		mine, err := s.apply(e, b, others)
		if err != nil {
			return nil, err
		}
		seen = seen || mine
	}
	if !seen {
		return nil, errLost
	}
	if len(entries) > 0 {
		s.setClock()
		s.settle()
	}
	s.catchUp()
	for id := range others {
		wake = append(wake, id)
	}
	return wake, nil
}

// apply applies an entry, and reports whether it is what b has become. It adds to
// others those for whom an entry of this replica has changed something.
func (s *Store) apply(e entry, b *batch, others map[int64]bool) (seen bool, err error) {
	if slices.Contains(e.Gone, s.id) {
		s.fenced = true
		return false, errLost
	}
	out, err := s.machine.apply(e)
	if err != nil {
		return false, err
	}
	mine := e.Replica == s.id
	if seen = mine && e.Op == b.op && b.op != 0; seen {
		s.places.add(b.arrival, e.Seq)
		s.crowded = crowded(b.requests, out.results)
		for i, r := range b.requests {
			s.deliver(r, out.results[i])
		}
	}
	for _, t := range out.granted {
		s.grant(t, mine, others)
	}
	for _, r := range out.recalled {
		s.recall(r, mine, others)
	}
	if s.machine.worthSaving() && mine {
		s.save()
	}
	return seen, nil
}

// settle does what entries may have made possible.
func (s *Store) settle() {
	s.hurry()
	s.bindAll()
	s.tell(time.Now())
}

// crowded reports whether all who ask have to wait, or nobody asks.
func crowded(requests []request, results []result) bool {
	for i, r := range results {
		if requests[i].Admit != nil && (r.ticket == nil || r.ticket.Running()) {
			return false
		}
	}
	return true
}

// deliver tells whose command it was what it has led to.
func (s *Store) deliver(of request, r result) {
	c := of.call
	if of.Release != nil || of.Forget != nil {
		s.free(c, -1)
	}
	switch {
	case r.kept:
		s.kept(c)
	case c == nil || c.state == over: // a command to forget it follows
	case r.err != nil && of.Resume != nil:
		s.revokeCall(c)
	case r.err != nil:
		s.end(c, r.err)
	default:
		s.answered(c)
		c.ticket, c.place = r.ticket, r.ticket.Arrival()
		if r.ticket.Running() {
			s.start(c, r.ticket.Candidate())
			return
		}
		s.queue(c)
		if c.record.NoWait {
			s.hurried = append(s.hurried, c)
			return
		}
		if c.early || c.record.Priority > 0 {
			c.bindAt = time.Now().Add(freshFor)
		}
		s.bindSoon(c)
	}
}

// recall returns what this replica does not use of a scope that somebody waits
// for, or notes whom to tell to do so.
func (s *Store) recall(r recall, mine bool, others map[int64]bool) {
	switch {
	case r.replica == s.id:
		s.answer(r.scope)
	case mine:
		others[r.replica] = true
	}
}

// hurry ends the waits of those who may not wait, once others have returned what
// they were lent and did not use.
func (s *Store) hurry() {
	s.hurried = slices.DeleteFunc(s.hurried, func(c *call) bool {
		if !s.inLine(c) {
			return true
		}
		settled := s.machine.queue.Settled(c.ticket, s.id)
		if settled {
			s.drop(c, s.machine.queue.Busy(s.machine.at, c.ticket))
		}
		return settled
	})
}

// grant lets the call of t run, or notes whom to tell that it does.
func (s *Store) grant(t *queue.Ticket, mine bool, others map[int64]bool) {
	owner := s.machine.owners[t]
	if owner != s.id {
		if owner != 0 && mine {
			others[owner] = true
		}
		return
	}
	if c := s.callOf(t); c != nil {
		s.start(c, t.Candidate())
	}
}

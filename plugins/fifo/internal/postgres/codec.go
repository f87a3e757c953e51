package postgres

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// Commands are stored as a list of operations, each with its numbers, as varints,
// and its texts. A text or a scope that may come again is written in full once and
// has a number from then on: most requests use the same few.

// The operations. Their numbers are stored.
const (
	opAdmit = 1 + iota
	opWait
	opRun
	opResume
	opRelease
	opForget
	opHand
	opGive
)

// encode returns commands as they are stored.
func encode(commands []command) []byte {
	w := writer{texts: map[string]uint64{}, scopes: map[queue.ScopeRecord]uint64{}}
	for i := range commands {
		w.command(&commands[i])
	}
	return w.data
}

type writer struct {
	data   []byte
	texts  map[string]uint64
	scopes map[queue.ScopeRecord]uint64
}

func (w *writer) command(c *command) {
	switch {
	case c.Admit != nil:
		w.record(opAdmit, c.Admit)
	case c.Wait != nil:
		w.record(opWait, c.Wait)
	case c.Run != nil:
		w.record(opRun, c.Run)
	case c.Resume != nil:
		w.record(opResume, c.Resume)
	case c.Release != nil:
		w.count(opRelease)
		w.release(c.Release)
	case c.Forget != nil:
		w.count(opForget)
		w.name(*c.Forget)
	case c.Hand != nil:
		w.count(opHand)
		w.release(&c.Hand.release)
		w.name(c.Hand.To)
		w.count(c.Hand.On)
		w.number(c.Hand.After)
	default:
		w.count(opGive)
		w.count(len(c.Give))
		for _, l := range c.Give {
			w.again(l.Scope)
			w.number(l.N)
		}
	}
}

func (w *writer) record(op int, r *queue.Record) {
	w.count(op)
	w.name(name{r.ID, r.Attempt})
	w.number(int64(r.Priority))
	w.number(r.Arrival)
	w.number(r.Tokens)
	w.flag(r.NoWait)
	w.again(string(r.Rules.Order))
	w.number(int64(r.Rules.QueueLimit))
	w.number(int64(r.Rules.MaxWait))
	w.number(int64(r.Rules.MaxPasses))
	w.list(r.Scopes)
	w.count(len(r.Candidates))
	for _, c := range r.Candidates {
		w.again(c.ID)
		w.list(c.Scopes)
	}
}

func (w *writer) release(r *release) {
	w.name(r.name)
	w.flag(r.Keep)
	w.flag(r.Tokens != nil)
	if r.Tokens != nil {
		w.number(*r.Tokens)
	}
}

func (w *writer) name(n name) {
	w.text(n.ID)
	w.number(int64(n.Attempt))
}

func (w *writer) list(scopes []queue.ScopeRecord) {
	w.count(len(scopes))
	for _, s := range scopes {
		n := w.scopes[s]
		w.count(int(n))
		if n > 0 {
			continue
		}
		w.scopes[s] = uint64(len(w.scopes) + 1)
		w.again(s.ID)
		w.again(string(s.Kind))
		w.number(s.Limit)
		w.number(int64(s.Window))
	}
}

// again writes a text that may come again.
func (w *writer) again(text string) {
	n := w.texts[text]
	w.count(int(n))
	if n == 0 {
		w.texts[text] = uint64(len(w.texts) + 1)
		w.text(text)
	}
}

func (w *writer) text(s string) {
	w.count(len(s))
	w.data = append(w.data, s...)
}

func (w *writer) flag(set bool) {
	n := 0
	if set {
		n = 1
	}
	w.count(n)
}

func (w *writer) count(n int)    { w.data = binary.AppendUvarint(w.data, uint64(n)) }
func (w *writer) number(n int64) { w.data = binary.AppendVarint(w.data, n) }

var errCommands = errors.New("commands of another version, or broken ones")

// decode returns what encode was given.
func decode(data []byte) ([]command, error) {
	r := reader{data: data}
	var commands []command
	for len(r.data) > 0 && !r.broken {
		commands = append(commands, r.command())
	}
	if r.broken {
		return nil, errCommands
	}
	return commands, nil
}

// A reader reads what a writer has written. Once something is broken, all is empty
// from there on.
type reader struct {
	data   []byte
	broken bool
	texts  []string
	scopes []queue.ScopeRecord
}

func (r *reader) command() (c command) {
	switch r.count() {
	case opAdmit:
		c.Admit = r.record()
	case opWait:
		c.Wait = r.record()
	case opRun:
		c.Run = r.record()
	case opResume:
		c.Resume = r.record()
	case opRelease:
		c.Release = new(r.release())
	case opForget:
		c.Forget = new(r.name())
	case opHand:
		c.Hand = &hand{release: r.release(), To: r.name(), On: r.count(), After: r.number()}
	case opGive:
		c.Give = make([]queue.Loan, r.length())
		for i := range c.Give {
			c.Give[i] = queue.Loan{Scope: r.again(), N: r.number()}
		}
	default:
		r.fail()
	}
	return c
}

func (r *reader) record() *queue.Record {
	n := r.name()
	record := &queue.Record{
		ID: n.ID, Attempt: n.Attempt, Priority: int(r.number()), Arrival: r.number(), Tokens: r.number(), NoWait: r.flag(),
		Rules: queue.RulesRecord{
			Order: queue.Order(r.again()), QueueLimit: int(r.number()), MaxWait: r.duration(), MaxPasses: int(r.number()),
		},
		Scopes: r.list(),
	}
	record.Candidates = make([]queue.CandidateRecord, r.length())
	for i := range record.Candidates {
		record.Candidates[i] = queue.CandidateRecord{ID: r.again(), Scopes: r.list()}
	}
	return record
}

func (r *reader) release() release {
	n, keep := r.name(), r.flag()
	if r.flag() {
		return release{n, new(r.number()), keep}
	}
	return release{n, nil, keep}
}

func (r *reader) name() name {
	id := r.text()
	return name{id, int(r.number())}
}

func (r *reader) list() []queue.ScopeRecord {
	length := r.length()
	if length == 0 {
		return nil
	}
	list := make([]queue.ScopeRecord, length)
	for i := range list {
		if n := r.count(); n > 0 {
			list[i] = known(r, r.scopes, n)
			continue
		}
		list[i] = queue.ScopeRecord{
			ID: r.again(), Kind: policy.ScopeKind(r.again()), Limit: r.number(), Window: r.duration(),
		}
		r.scopes = append(r.scopes, list[i])
	}
	return list
}

func (r *reader) again() string {
	if n := r.count(); n > 0 {
		return known(r, r.texts, n)
	}
	text := r.text()
	r.texts = append(r.texts, text)
	return text
}

// known returns what has come as the n-th.
func known[V any](r *reader, list []V, n int) (v V) {
	if n < 0 || n > len(list) {
		r.fail()
		return v
	}
	return list[n-1]
}

func (r *reader) text() string {
	n := r.length()
	text := string(r.data[:n])
	r.data = r.data[n:]
	return text
}

func (r *reader) flag() bool { return r.count() == 1 }

// length returns a number of things, each of which takes a byte at least.
func (r *reader) length() int {
	n := r.count()
	if n < 0 || n > len(r.data) {
		r.fail()
		return 0
	}
	return n
}

func (r *reader) count() int {
	n, size := binary.Uvarint(r.data)
	r.skip(size)
	return int(n)
}

func (r *reader) number() int64 {
	n, size := binary.Varint(r.data)
	r.skip(size)
	return n
}

func (r *reader) duration() time.Duration { return time.Duration(r.number()) }

// skip goes on after a number of that size.
func (r *reader) skip(size int) {
	if size <= 0 {
		r.fail()
		return
	}
	r.data = r.data[size:]
}

func (r *reader) fail() { r.data, r.broken = nil, true }

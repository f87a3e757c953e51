package simulator

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// orderLength is how many of the last requests [Stats.Order] tells.
const orderLength = 10_000

// statusGone stands in a [Record] for a client that left.
const statusGone = 499

// Counts are the requests of a key, or of all keys.
type Counts struct {
	// InFlight requests run now; MaxInFlight ran at once at most. Both
	// include a request over the limit, for the moment until it is refused.
	InFlight    int `json:"in_flight"`
	MaxInFlight int `json:"max_in_flight"`

	// Requests is how many came, including the refused ones.
	Requests int `json:"requests"`

	// OverLimit is how many of them came while the key ran as many as it
	// may, or had used up its window.
	OverLimit int `json:"over_limit"`
}

// Stats are the answer of GET /simulator/stats.
type Stats struct {
	Name string `json:"name"`
	Counts

	// Keys has the counts by the key's name. Requests with an unknown key
	// are counted under "unknown", and under "any" if no key was declared.
	Keys map[string]Counts `json:"keys"`

	// Order tells the last requests in the order in which they came.
	Order []Record `json:"order"`
}

// Record tells one request.
type Record struct {
	// Tag is the word after "#tag=" in the request's prompt, if there is one.
	Tag string `json:"tag,omitempty"`

	Key       string `json:"key"`
	Operation string `json:"operation,omitempty"`
	Model     string `json:"model,omitempty"`

	// Status is that of the answer, 499 if the client left before its end,
	// and 0 while the request runs.
	Status int `json:"status"`

	Start time.Time `json:"start"`
	// End is zero while the request runs.
	End time.Time `json:"end,omitzero"`
}

// Fault makes requests fail: the body of POST /simulator/faults.
type Fault struct {
	// Key is the name of the key whose requests fail; empty means all.
	Key string `json:"key,omitempty"`

	// Status is what they are refused with, and Code the error code.
	Status int    `json:"status"`
	Code   string `json:"code,omitempty"`

	// RetryAfter is a duration such as "3s".
	RetryAfter string `json:"retry_after,omitempty"`

	// Count is how many requests fail; 0 means all until the fault is ended.
	Count int `json:"count,omitempty"`

	retryAfter time.Duration
}

// tally is what a key has had to do.
type tally struct {
	Counts
	starts []time.Time // of the requests that count for the key's window
}

// ledger counts the requests of one provider. It is safe for concurrent use.
type ledger struct {
	mu     sync.Mutex
	total  Counts
	keys   map[string]*tally
	order  []*Record
	faults []*Fault
	carry  float64 // the part of a failure that the error rate has run up
}

func newLedger() *ledger { return &ledger{keys: map[string]*tally{}} }

// call is one request in flight.
type call struct {
	ledger *ledger
	tally  *tally
	record *Record
	once   sync.Once
}

// begin counts a request in, and says why it is refused, if it is.
func (l *ledger) begin(p *Provider, secret string, now time.Time) (*call, *refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, name := p.find(secret)
	t := l.keys[name]
	if t == nil {
		t = new(tally)
		l.keys[name] = t
	}
	l.total.enter()
	t.enter()
	c := &call{ledger: l, tally: t, record: &Record{Key: name, Start: now}}
	if len(l.order) == orderLength {
		l.order = l.order[1:]
	}
	l.order = append(l.order, c.record)

	r := l.judgeLocked(p, key, t, now)
	if r != nil && r.overLimit {
		l.total.OverLimit++
		t.OverLimit++
	}
	return c, r
}

func (c *Counts) enter() {
	c.Requests++
	c.InFlight++
	c.MaxInFlight = max(c.MaxInFlight, c.InFlight)
}

// find returns the key of a secret, or nil, and the name to count it under.
func (p *Provider) find(secret string) (*Key, string) {
	if len(p.Keys) == 0 {
		return &Key{}, "any"
	}
	if k := p.keys[secret]; k != nil {
		return k, k.Name
	}
	return nil, "unknown"
}

// describe adds what the request's body told.
func (c *call) describe(operation, model, tag string) {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	c.record.Operation, c.record.Model, c.record.Tag = operation, model, tag
}

// end counts the request out. Only the first call has an effect.
func (c *call) end(status int, now time.Time) {
	c.once.Do(func() {
		c.ledger.mu.Lock()
		defer c.ledger.mu.Unlock()
		c.ledger.total.InFlight--
		c.tally.InFlight--
		c.record.Status, c.record.End = status, now
	})
}

// inject adds a fault.
func (l *ledger) inject(f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, &f)
}

// heal ends all faults.
func (l *ledger) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = nil
}

// stats returns a copy of all counts.
func (l *ledger) stats(name string) Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Name: name, Counts: l.total, Keys: map[string]Counts{}, Order: make([]Record, 0, len(l.order))}
	for name, t := range maps.All(l.keys) {
		s.Keys[name] = t.Counts
	}
	for r := range slices.Values(l.order) {
		s.Order = append(s.Order, *r)
	}
	return s
}

// faultLocked returns the fault that hits a request, and counts it.
func (l *ledger) faultLocked(key string) *Fault {
	i := slices.IndexFunc(l.faults, func(f *Fault) bool { return f.Key == "" || f.Key == key })
	if i < 0 {
		return nil
	}
	f := l.faults[i]
	if f.Count > 0 {
		if f.Count--; f.Count == 0 {
			l.faults = slices.Delete(l.faults, i, i+1)
		}
	}
	return f
}

// judgeLocked says why a request that was counted in is refused, or nil.
func (l *ledger) judgeLocked(p *Provider, key *Key, t *tally, now time.Time) *refusal {
	if key == nil {
		return refuse(http.StatusUnauthorized, "", 0)
	}
	if f := l.faultLocked(key.Name); f != nil {
		return refuse(f.Status, f.Code, f.retryAfter)
	}
	if key.Status != 0 {
		return refuse(key.Status, key.Code, time.Duration(key.RetryAfter))
	}
	if r := key.overLimit(t, now); r != nil {
		return r
	}
	if l.carry += p.ErrorRate; l.carry >= 1 {
		l.carry--
		return refuse(p.ErrorStatus, "", 0)
	}
	if key.Requests != nil {
		t.starts = append(t.starts, now)
	}
	return nil
}

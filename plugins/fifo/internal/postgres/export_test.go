package postgres

import (
	"encoding/json"
	"time"
)

// State returns what the store has read, and what that has led to. It makes the
// store read what is new.
func (s *Store) State() (seq int64, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.kick()
	if s.machine == nil {
		return 0, ""
	}
	data, err := json.Marshal(s.machine.state())
	if err != nil {
		return s.machine.seq, err.Error()
	}
	return s.machine.seq, string(data)
}

// At returns how far the store has read, and what it is called there.
func (s *Store) At() (seq, replica int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machine == nil {
		return 0, 0
	}
	return s.machine.seq, s.id
}

// KeepAtOnce makes the store keep what it held even if others waited for it a
// moment ago.
func (s *Store) KeepAtOnce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credits.quiet = -time.Hour
}

// Listening reports whether notifications come.
func (s *Store) Listening() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listening
}

// The times that tests wait for.
const (
	Lease   = lease
	HoldFor = holdFor
)

// RulesVersion is the number of the rules.
const RulesVersion = rulesVersion

// What the log holds.
type (
	Command = command
	Name    = name
	Release = release
	Hand    = hand
)

// Encode and Decode turn commands into what is stored, and back.
var (
	Encode = encode
	Decode = decode
)

// Named returns a release of that name.
func Named(n Name, keep bool) Release { return release{name: n, Keep: keep} }

// HandOver returns the command by which one lease passes to another request.
func HandOver(from, to Name) *Hand { return &hand{release: release{name: from}, To: to} }

// OpenWithRules returns a store of a version of which the rules have that number.
func OpenWithRules(dsn, schema string, rules int) (*Store, error) { return open(dsn, schema, rules) }

// Apply returns the state that one entry of commands leads to.
func Apply(commands []byte) (state string, err error) {
	m, err := loadMachine(0, nil)
	if err != nil {
		return "", err
	}
	if _, err := m.apply(entry{Seq: 1, At: 1e15, Replica: 1, Op: 1, Commands: commands}); err != nil {
		return "", err
	}
	data, err := json.Marshal(m.state())
	return string(data), err
}

// ParsePublished returns the entry that a notification brings, and what it says.
func ParsePublished(payload string) (entry, []Command, error) {
	p, err := parsePublished(payload)
	if err != nil {
		return p.entry, nil, err
	}
	commands, err := decode(p.Commands)
	return p.entry, commands, err
}

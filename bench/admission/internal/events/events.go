// Package events is how replicas tell what their callers see, for a checker that
// knows nothing of the store.
//
// Each replica writes its events to a file, one system call each, before the
// caller goes on. So what is in the file when the replica is killed is what its
// callers have seen.
package events

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
)

// A Kind is what happened.
type Kind string

// The kinds of event.
const (
	Ask    Kind = "ask"    // before Admit is called
	Wait   Kind = "wait"   // Admit told that the request waits
	Run    Kind = "run"    // Admit returned a lease
	End    Kind = "end"    // before Release is called
	Refuse Kind = "refuse" // Admit returned a rejection
	Cancel Kind = "cancel" // before the caller leaves
	Left   Kind = "left"   // Admit returned because the caller left
	Revoke Kind = "revoke" // the policy took a lease back

	Stop Kind = "stop" // of a replica: before all of its callers leave

	Killed    Kind = "killed"    // of a replica: it was ended from outside
	Frozen    Kind = "frozen"    // of a replica: it was stopped from outside
	Thawed    Kind = "thawed"    // of a replica: it goes on
	Trouble   Kind = "trouble"   // of the database, from then on
	Recovered Kind = "recovered" // of the database

	// Audit: after all has ended, Got leases on a scope could be had, of
	// those that its limit allows.
	Audit Kind = "audit"
)

// A Scope is one with a limit of concurrency, or of requests in any span of Window
// nanoseconds if that is not 0.
type Scope struct {
	ID     string `json:"id"`
	Limit  int64  `json:"limit"`
	Window int64  `json:"window,omitempty"`
}

// An Event is one thing that happened, at an instant by the clock that all
// processes share, in nanoseconds.
type Event struct {
	At      int64  `json:"at"`
	Kind    Kind   `json:"kind"`
	Replica int    `json:"replica"`
	ID      string `json:"id,omitempty"`
	Attempt int    `json:"attempt,omitempty"`

	// Of what is asked: its priority, its own scopes and those of each candidate.
	Priority   int       `json:"priority,omitempty"`
	Own        []Scope   `json:"own,omitempty"`
	Candidates [][]Scope `json:"candidates,omitempty"`

	// Candidate is the index of the one that it runs on.
	Candidate int `json:"candidate,omitempty"`

	// Of an audit.
	Scope *Scope `json:"scope,omitempty"`
	Got   int64  `json:"got,omitempty"`
}

// A Log takes the events of one replica. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex // guards all below
	file *os.File
	buf  bytes.Buffer
	err  error
}

// Create creates a log.
func Create(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Log{file: f}, nil
}

// Tell appends an event.
func (l *Log) Tell(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Reset()
	err := json.NewEncoder(&l.buf).Encode(e)
	if err == nil {
		_, err = l.file.Write(l.buf.Bytes())
	}
	if l.err == nil {
		l.err = err
	}
}

// Close returns the first error there was.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.err, l.file.Close())
}

// Read returns the events of all files, in the order of their time. A last line that is
// not complete is that of a killed process.
func Read(paths ...string) ([]Event, error) {
	var all []Event
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(data) {
			if !bytes.HasSuffix(line, []byte{'\n'}) {
				continue
			}
			var e Event
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, fmt.Errorf("%s: %w in %q", path, err, line)
			}
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}

package pluginhost

import (
	"cmp"
	"slices"
	"sync"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// A ledger knows which tickets run and which wait, so that a new process can
// be told.
type ledger struct {
	mu      sync.Mutex
	tickets map[ledgerKey]*entry
}

type ledgerKey struct {
	instance string
	ticket   host.Ticket
}

type entry struct {
	host.Held
	running bool
}

func newLedger() *ledger { return &ledger{tickets: make(map[ledgerKey]*entry)} }

// record notes the answer of an admission policy about held: that it runs on
// one of its candidates, or that it waits.
func (l *ledger) record(instance string, held host.Held, a *host.Admission) {
	key := ledgerKey{instance, host.Ticket{ID: held.Request.ID, Attempt: held.Attempt}}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case a.Waiting:
		l.tickets[key] = &entry{Held: held}
	case a.Candidate != "":
		i := slices.IndexFunc(held.Candidates, func(c policy.Candidate) bool { return c.ID == a.Candidate })
		held.Candidates = held.Candidates[i : i+1]
		l.tickets[key] = &entry{Held: held, running: true}
	default:
		delete(l.tickets, key)
	}
}

// forget drops a ticket that has ended.
func (l *ledger) forget(instance string, ticket host.Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tickets, ledgerKey{instance, ticket})
}

// released drops tickets whose release was acknowledged.
func (l *ledger) released(releases []host.Release) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range releases {
		delete(l.tickets, ledgerKey{r.Instance, r.Ticket})
	}
}

// held returns what an instance holds; waiting is in the order of arrival.
func (l *ledger) held(instance string) (running, waiting []host.Held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.tickets {
		switch {
		case key.instance != instance:
		case e.running:
			running = append(running, e.Held)
		default:
			waiting = append(waiting, e.Held)
		}
	}
	slices.SortFunc(waiting, func(a, b host.Held) int { return cmp.Compare(a.Request.Arrival, b.Request.Arrival) })
	return running, waiting
}

// counts returns how many tickets run and wait, over all instances.
func (l *ledger) counts() (running, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.tickets {
		if e.running {
			running++
		} else {
			waiting++
		}
	}
	return running, waiting
}

package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usherproxy/usher/bench/admission/internal/events"
	"github.com/usherproxy/usher/policy"
)

// Random is a load of callers who do all that callers may do, at random, and tell
// of it.
type Random struct {
	// Seed makes all choices.
	Seed uint64

	// Callers is how many there are in this replica.
	Callers int

	// Limit is that of each scope. With Changes it is halved and doubled from
	// time to time, not everywhere at the same moment.
	Limit   int64
	Changes bool

	// Scopes is how many a request takes, from 1 to 3, and Candidates how many
	// may serve it, from 1 to 5.
	Scopes, Candidates int

	// Rate is how many requests each key may get in any span of Window. 0 means that it has
	// no such limit.
	Rate   int64
	Window time.Duration

	// Hold is how long a lease is used at most, and During how long callers
	// come back. Who waits then waits on, but for no longer than Patience.
	Hold, During, Patience time.Duration

	// Cancels, Failovers and Urgent say how many of 100 requests are left by their
	// callers, fail over, and have a higher priority.
	Cancels, Failovers, Urgent int

	// Events is the file for what callers see.
	Events string

	// Fault, if it is not empty, makes the policy wrong on purpose.
	Fault Fault
}

type random struct {
	Random
	policy   policy.Admitter
	replica  int
	log      *events.Log
	arrivals atomic.Int64
	until    int64
}

func (l *Random) run(ctx context.Context, a policy.Admitter, replica int) (*Report, error) {
	log, err := events.Create(l.Events)
	if err != nil {
		return nil, err
	}
	r := &random{Random: *l, policy: l.Fault.wrap(a), replica: replica, log: log, until: Clock() + int64(l.During)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var callers sync.WaitGroup
	for i := range l.Callers {
		callers.Go(func() {
			dice := rand.New(rand.NewPCG(l.Seed, uint64(replica<<32+i)))
			for Clock() < r.until && ctx.Err() == nil {
				r.call(ctx, dice)
			}
		})
	}
	timer := time.AfterFunc(l.During+l.Patience, func() {
		log.Tell(events.Event{At: Clock(), Kind: events.Stop, Replica: replica})
		cancel()
	})
	callers.Wait()
	timer.Stop()
	return &Report{}, log.Close()
}

// A request is one of a caller's, through all of its attempts.
type request struct {
	*random
	dice *rand.Rand
	ask  policy.AdmitRequest
}

// call makes one request.
func (r *random) call(ctx context.Context, dice *rand.Rand) {
	at := Clock() // before the arrival is counted
	arrival := r.arrivals.Add(1)
	req := &request{random: r, dice: dice}
	req.ask = policy.AdmitRequest{
		Attempt: 1,
		Request: &policy.Request{
			ID: fmt.Sprintf("r%d.%d-%d", r.replica, os.Getpid(), arrival), Arrival: arrival, Scopes: r.own(dice),
		},
		Candidates: r.candidates(dice),
	}
	if dice.IntN(100) < r.Urgent {
		req.ask.Request.Priority = 1
	}
	for req.attempt(ctx, at) {
		at = Clock()
	}
	if dice.IntN(4) == 0 {
		time.Sleep(time.Duration(dice.Int64N(int64(r.Hold))))
	}
}

// limit returns the limit of scopes at this moment.
func (r *random) limit() int64 {
	if !r.Changes || (Clock()/int64(time.Second)+int64(r.replica)/2)%2 == 0 {
		return r.Limit
	}
	return max(1, r.Limit/2)
}

func (r *random) scope(id string) policy.Scope {
	return policy.Scope{ID: id, Kind: policy.ScopeConcurrency, Limit: r.limit()}
}

// own returns the scopes that a request takes whoever serves it.
func (r *random) own(dice *rand.Rand) (scopes []policy.Scope) {
	if r.Scopes > 1 {
		scopes = append(scopes, r.scope(fmt.Sprint("caller:", dice.IntN(3))))
	}
	if r.Scopes > 2 {
		scopes = append(scopes, r.scope("fleet"))
	}
	return scopes
}

// candidates returns those of a request: the first of a list of keys, turned.
func (r *random) candidates(dice *rand.Rand) []policy.Candidate {
	list := make([]policy.Candidate, 1+dice.IntN(r.Candidates))
	first := dice.IntN(r.Candidates)
	for i := range list {
		key := fmt.Sprint("key:", (first+i)%r.Candidates)
		list[i] = policy.Candidate{ID: key, Scopes: []policy.Scope{r.scope(key)}}
		if r.Rate > 0 {
			list[i].Scopes = append(list[i].Scopes, policy.Scope{ID: key, Kind: policy.ScopeRequests, Limit: r.Rate, Window: r.Window})
		}
	}
	return list
}

// attempt makes one attempt, and reports whether there is to be another.
func (r *request) attempt(ctx context.Context, at int64) (again bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	attempt := r.ask.Attempt
	r.tell(events.Event{At: at, Kind: events.Ask, Attempt: attempt})
	var waits sync.Once
	r.ask.Waiting = func(int) {
		waits.Do(func() { r.tell(events.Event{Kind: events.Wait, Attempt: attempt}) })
	}
	revoked := make(chan struct{})
	var once sync.Once
	r.ask.Revoke = func(policy.Reason) { once.Do(func() { close(revoked) }) }
	if r.dice.IntN(100) < r.Cancels {
		timer := time.AfterFunc(time.Duration(r.dice.Int64N(int64(4*r.Hold))), func() {
			r.tell(events.Event{Kind: events.Cancel, Attempt: attempt})
			cancel()
		})
		defer timer.Stop()
	}
	ask := r.ask
	lease, err := r.policy.Admit(ctx, &ask)
	if err != nil {
		r.refused(ctx, err, attempt)
		return false
	}
	r.tell(events.Event{Kind: events.Run, Attempt: attempt, Candidate: lease.Candidate()})
	select {
	case <-time.After(time.Duration(r.dice.Int64N(int64(r.Hold)))):
	case <-revoked:
		r.tell(events.Event{Kind: events.Revoke, Attempt: attempt})
	}
	r.tell(events.Event{Kind: events.End, Attempt: attempt})
	_ = lease.Release(context.Background(), policy.Outcome{Disposition: policy.Overloaded})
	if len(r.ask.Candidates) == 1 || r.dice.IntN(100) >= r.Failovers {
		return false
	}
	i := lease.Candidate()
	r.ask.Candidates = append(append([]policy.Candidate{}, r.ask.Candidates[:i]...), r.ask.Candidates[i+1:]...)
	r.ask.Attempt++
	return true
}

func (r *request) refused(ctx context.Context, err error, attempt int) {
	rejection, ok := errors.AsType[*policy.Rejection](err)
	if !ok {
		r.tell(events.Event{Kind: events.Left, Attempt: attempt})
		return
	}
	r.tell(events.Event{Kind: events.Refuse, Attempt: attempt})
	select {
	case <-time.After(min(rejection.RetryAfter, 50*time.Millisecond)):
	case <-ctx.Done():
	}
}

// tell tells of an attempt.
func (r *request) tell(e events.Event) {
	e.Replica, e.ID = r.replica, r.ask.Request.ID
	if e.Kind == events.Ask {
		e.Priority, e.Own = r.ask.Request.Priority, scopesOf(r.ask.Request.Scopes)
		for _, c := range r.ask.Candidates {
			e.Candidates = append(e.Candidates, scopesOf(c.Scopes))
		}
	}
	if e.At == 0 {
		e.At = Clock()
	}
	r.log.Tell(e)
}

func scopesOf(scopes []policy.Scope) []events.Scope {
	out := make([]events.Scope, len(scopes))
	for i, s := range scopes {
		out[i] = events.Scope{ID: s.ID, Limit: s.Limit, Window: int64(s.Window)}
	}
	return out
}

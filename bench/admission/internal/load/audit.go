package load

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/usherproxy/usher/bench/admission/internal/events"
	"github.com/usherproxy/usher/policy"
)

// An Audit takes all there is of each scope, after all others have ended.
type Audit struct {
	Scopes []events.Scope

	// Patience is how long it waits for what is not free at once.
	Patience time.Duration

	// Events is the file for what it sees.
	Events string
}

func (a *Audit) run(ctx context.Context, p policy.Admitter, replica int) (*Report, error) {
	log, err := events.Create(a.Events)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.Patience)
	defer cancel()
	arrival := int64(1) << 40 // after all others
	for _, scope := range a.Scopes {
		var leases []policy.Lease
		for i := range scope.Limit + 1 {
			at := Clock()
			arrival++
			req := policy.AdmitRequest{
				Attempt: 1, NoWait: i == scope.Limit,
				Request: &policy.Request{
					ID: fmt.Sprintf("audit%d-%d", os.Getpid(), arrival), Arrival: arrival,
					Scopes: []policy.Scope{{ID: scope.ID, Kind: policy.ScopeConcurrency, Limit: scope.Limit}},
				},
				Candidates: []policy.Candidate{{ID: "audit"}},
			}
			e := events.Event{At: at, Kind: events.Ask, Replica: replica, ID: req.Request.ID, Attempt: 1}
			e.Own, e.Candidates = []events.Scope{scope}, [][]events.Scope{{}}
			log.Tell(e)
			lease, err := p.Admit(ctx, &req)
			if e.At, e.Kind, e.Own, e.Candidates = Clock(), events.Run, nil, nil; err != nil {
				e.Kind = events.Refuse
			}
			log.Tell(e)
			if err != nil {
				break
			}
			leases = append(leases, lease)
		}
		log.Tell(events.Event{At: Clock(), Kind: events.Audit, Replica: replica, Scope: &scope, Got: int64(len(leases))})
		for _, l := range leases {
			_ = l.Release(context.Background(), policy.Outcome{})
		}
	}
	return &Report{}, log.Close()
}

package fifo

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/memory"
	"github.com/usherproxy/usher/plugins/fifo/internal/outage"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A Status is the answer to the command "status".
type Status struct {
	// Store is "memory" or "postgres".
	Store string `json:"store"`

	// Running and Waiting are the requests of this replica.
	Running int `json:"running"`
	Waiting int `json:"waiting"`

	// Shared is how the store is that replicas share, if this is one.
	Shared *SharedStatus `json:"shared,omitempty"`

	// Scopes are those that are in use or waited for, by all replicas.
	Scopes []queue.ScopeStatus `json:"scopes"`
}

// A SharedStatus is how a shared store is, as one replica sees it.
type SharedStatus struct {
	Schema string `json:"schema"`

	// State is "joining" before the store was reached first, "up", or "away".
	State string `json:"state"`

	// Since is when the last turn began to fail, or to succeed.
	Since time.Time `json:"since,omitzero"`

	// Error is why it is not up.
	Error string `json:"error,omitempty"`

	// Notifications says whether they come. Without them replicas with waiting
	// requests read more often.
	Notifications bool `json:"notifications"`

	// OnError is the option on_store_error, and Alone where this replica stands with it,
	// if it is not "closed".
	OnError OnStoreError     `json:"on_store_error"`
	Alone   *outage.Standing `json:"alone,omitempty"`

	// Replicas are those who have something, and this one.
	Replicas []postgres.ReplicaStatus `json:"replicas"`
}

// stateUp is the state of a shared store that answers.
const stateUp = "up"

var _ policy.Operable = (*admitter)(nil)

// Operate knows the command "status".
func (a *admitter) Operate(_ context.Context, cmd policy.Command) (json.RawMessage, error) {
	if cmd.Name != "status" {
		return nil, fmt.Errorf("fifo knows no command %q; there is status", cmd.Name)
	}
	return json.Marshal(a.status())
}

func (a *admitter) status() Status {
	if s, ok := a.store.(*shared); ok {
		return s.status()
	}
	status := Status{Store: storeMemory}
	if s, ok := a.store.(*memory.Store); ok {
		status.Scopes, status.Running, status.Waiting = s.Status()
	}
	return status
}

func (s *shared) status() Status {
	health, _ := s.postgres.Health()
	known := s.postgres.Status()
	of := &SharedStatus{
		Schema: s.schema, State: stateUp, Since: health.Since, Notifications: health.Listening, OnError: s.mode, Replicas: known.Replicas,
	}
	switch {
	case health.Away:
		of.State = "away"
	case health.Replica == 0:
		of.State = "joining"
	}
	if health.Problem != nil {
		of.Error = health.Problem.Error()
	}
	status := Status{Store: storePostgres, Running: known.Running, Waiting: known.Waiting, Shared: of, Scopes: known.Scopes}
	if s.ladder != nil {
		standing := s.ladder.Standing()
		of.Alone = &standing
		status.Running = max(status.Running, standing.Running)
	}
	return status
}

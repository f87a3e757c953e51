package conformance

import (
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/usherproxy/usher/policy"
)

// Patience is how long a check waits for what should come at once. It is long
// because it only matters where a check fails. It may be set before the first
// check runs.
var Patience = 30 * time.Second

// A world names the requests and scopes of one check, so that checks do not
// meet even if their policies share a store.
type world struct {
	name string
	now  time.Time
	last atomic.Int64 // number of the last request
}

func newWorld() *world { return &world{name: rand.Text()[:8], now: time.Now()} }

// request returns a request with an ID of its own.
func (w *world) request(scopes ...policy.Scope) *policy.Request {
	return w.requestNumber(w.last.Add(1), scopes...)
}

// requestNumber returns equal requests for equal numbers.
func (w *world) requestNumber(n int64, scopes ...policy.Scope) *policy.Request {
	return &policy.Request{
		ID:              fmt.Sprintf("%s-%d", w.name, n),
		Format:          "openai",
		Operation:       "chat",
		Model:           "gpt-4o",
		Stream:          true,
		Caller:          policy.Caller{ID: "alice", Group: "research"},
		Arrival:         n,
		InputTokens:     100,
		MinInputTokens:  50,
		MaxOutputTokens: 50,
		Affinity:        "session-" + w.name,
		ReceivedAt:      w.now,
		Deadline:        w.now.Add(time.Hour),
		Scopes:          scopes,
	}
}

// scope returns a concurrency scope of this world.
func (w *world) scope(id string, limit int64) policy.Scope {
	return policy.Scope{ID: w.name + ":" + id, Kind: policy.ScopeConcurrency, Limit: limit}
}

// window returns a rate scope of this world, with a window that does not end
// while a test runs.
func (w *world) window(id string, kind policy.ScopeKind, limit int64) policy.Scope {
	return policy.Scope{ID: w.name + ":" + id, Kind: kind, Limit: limit, Window: 24 * time.Hour}
}

// candidate returns a candidate with a key of the given name.
func candidate(key string, scopes ...policy.Scope) policy.Candidate {
	return policy.Candidate{
		ID:            "openai/" + key + "/gpt-4o",
		Provider:      "openai",
		Key:           key,
		KeyVersion:    "v1",
		Account:       "openai/" + key,
		Model:         "gpt-4o",
		Weight:        1,
		ContextTokens: 128_000,
		Price:         policy.Price{Input: 2.5, Output: 10},
		Labels:        map[string]string{"region": "eu"},
		Scopes:        scopes,
	}
}

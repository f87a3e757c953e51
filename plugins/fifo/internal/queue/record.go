package queue

import (
	"iter"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A Record is what a queue needs to know of a request, in a form that can be
// stored and that other processes understand.
type Record struct {
	ID         string            `json:"id"`
	Attempt    int               `json:"attempt"`
	Priority   int               `json:"priority,omitempty"`
	Arrival    int64             `json:"arrival,omitempty"`
	Tokens     int64             `json:"tokens,omitempty"`
	NoWait     bool              `json:"no_wait,omitempty"`
	Rules      RulesRecord       `json:"rules,omitzero"`
	Scopes     []ScopeRecord     `json:"scopes,omitempty"`
	Candidates []CandidateRecord `json:"candidates"`
}

// A RulesRecord is [Rules] in a form that can be stored.
type RulesRecord struct {
	Order      Order         `json:"order,omitempty"`
	QueueLimit int           `json:"queue_limit,omitempty"`
	MaxWait    time.Duration `json:"max_wait,omitempty"`
	MaxPasses  int           `json:"max_passes,omitempty"`
}

// A CandidateRecord is what a queue needs to know of a candidate.
type CandidateRecord struct {
	ID     string        `json:"id"`
	Scopes []ScopeRecord `json:"scopes,omitempty"`
}

// A ScopeRecord is what a queue needs to know of a scope.
type ScopeRecord struct {
	ID     string           `json:"id"`
	Kind   policy.ScopeKind `json:"kind"`
	Limit  int64            `json:"limit"`
	Window time.Duration    `json:"window,omitempty"`
}

// NewRecord returns the record of a request.
func NewRecord(req *policy.AdmitRequest, rules Rules) Record {
	r := Record{
		ID: req.Request.ID, Attempt: req.Attempt, Priority: req.Request.Priority, Arrival: req.Request.Arrival,
		Tokens: req.Request.Tokens(), NoWait: req.NoWait, Rules: RulesRecord(rules),
		Scopes: scopeRecords(req.Request.Scopes),
	}
	for i := range req.Candidates {
		c := &req.Candidates[i]
		r.Candidates = append(r.Candidates, CandidateRecord{c.ID, scopeRecords(c.Scopes)})
	}
	return r
}

// Request returns the request that r is the record of, as far as a queue cares.
func (r *Record) Request() *policy.AdmitRequest {
	req := &policy.AdmitRequest{
		Attempt: r.Attempt, NoWait: r.NoWait,
		Request: &policy.Request{
			ID: r.ID, Priority: r.Priority, Arrival: r.Arrival, InputTokens: r.Tokens, Scopes: scopesOf(r.Scopes),
		},
	}
	for _, c := range r.Candidates {
		req.Candidates = append(req.Candidates, policy.Candidate{ID: c.ID, Scopes: scopesOf(c.Scopes)})
	}
	return req
}

// Loans yields the concurrency scopes that r may need a part of, some of them more
// than once.
func (r *Record) Loans() iter.Seq[string] {
	return func(yield func(string) bool) {
		lists := [][]ScopeRecord{r.Scopes}
		for _, c := range r.Candidates {
			lists = append(lists, c.Scopes)
		}
		for _, list := range lists {
			for _, s := range list {
				if s.Kind == policy.ScopeConcurrency && !yield(s.ID) {
					return
				}
			}
		}
	}
}

func scopeRecords(scopes []policy.Scope) []ScopeRecord {
	records := make([]ScopeRecord, len(scopes))
	for i, s := range scopes {
		records[i] = ScopeRecord{s.ID, s.Kind, s.Limit, s.Window}
	}
	return records
}

func scopesOf(records []ScopeRecord) []policy.Scope {
	scopes := make([]policy.Scope, len(records))
	for i, r := range records {
		scopes[i] = policy.Scope{ID: r.ID, Kind: r.Kind, Limit: r.Limit, Window: r.Window}
	}
	return scopes
}

package keys

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/usherproxy/usher/policy"
)

// retention is how long something learned is kept after it last mattered.
const retention = time.Hour

// state is what was learned of the keys. It is shared by all instances of a
// plugin, so it outlives each of their configurations.
type state struct {
	mu      sync.Mutex
	records map[account]*record

	// probing are the breakers whose probes have not come back.
	probing []*breaker

	// sweepAt is the number of records at which the next sweep is due.
	sweepAt int

	// charged are the latest requests that an upstream error was charged for.
	charged   [256]string
	chargedAt int
}

// An account is a key of a provider.
type account struct{ provider, key string }

// A record is what was learned of one account.
type record struct {
	quota      time.Time
	credential breaker
	models     map[string]*modelRecord
	circuits   map[string]*breaker // by format

	// latest is the last instant that matters.
	latest time.Time
}

// A modelRecord is what was learned of one upstream model of an account.
type modelRecord struct {
	cooldown   time.Time
	permission breaker
}

// gatherLocked sets f to what is known of a candidate.
func (s *state) gatherLocked(f *Facts, req *policy.Request, c *policy.Candidate, config *Config) {
	*f = Facts{Request: req, Candidate: c}
	r := s.records[account{c.Provider, c.Key}]
	if r == nil {
		return
	}
	f.Quota, f.Credential = r.quota, &r.credential.Breaker
	if m := r.models[c.Model]; m != nil {
		f.Cooldown, f.Permission = m.cooldown, &m.permission.Breaker
	}
	if b := r.circuits[req.Format]; b != nil && config.Breaker.Failures > 0 {
		f.Circuit = &b.Breaker
	}
}

// takeProbeLocked gives all open breakers of a candidate to the request.
func (s *state) takeProbeLocked(now time.Time, req *policy.Request, c *policy.Candidate, config *Config) {
	r := s.records[account{c.Provider, c.Key}]
	for _, b := range r.breakers(c.Model, req.Format) {
		if b == nil || !b.Open {
			continue
		}
		b.take(now, req.ID, config.Breaker)
		r.touch(b.ProbeUntil)
		if !slices.Contains(s.probing, b) {
			s.probing = append(s.probing, b)
		}
	}
}

// giveBackLocked ends the probes of a request that will not probe any more,
// and forgets those that came back by themselves or were never heard of again.
func (s *state) giveBackLocked(now time.Time, request string, over bool) {
	s.probing = slices.DeleteFunc(s.probing, func(b *breaker) bool {
		if over && b.held() && b.Probe == request {
			b.giveBack()
		}
		return !b.held() || now.After(b.ProbeUntil.Add(retention))
	})
}

// breakers are those that guard a model and a format, or nil.
func (r *record) breakers(model, format string) [3]*breaker {
	all := [3]*breaker{&r.credential, nil, r.circuits[format]}
	if m := r.models[model]; m != nil {
		all[1] = &m.permission
	}
	return all
}

// recordLocked returns the record of an account, which it may have to create.
func (s *state) recordLocked(now time.Time, a account) *record {
	r := s.records[a]
	if r == nil {
		if len(s.records) >= s.sweepAt {
			s.sweepLocked(now)
		}
		r = &record{models: map[string]*modelRecord{}, circuits: map[string]*breaker{}}
		s.records[a] = r
	}
	return r
}

// sweepLocked forgets what does not matter any more.
func (s *state) sweepLocked(now time.Time) {
	maps.DeleteFunc(s.records, func(_ account, r *record) bool {
		return now.After(r.latest.Add(retention))
	})
	s.sweepAt = max(64, 2*len(s.records))
}

// touch keeps the record for as long as any of the instants matters.
func (r *record) touch(instants ...time.Time) {
	for _, t := range instants {
		r.latest = later(r.latest, t)
	}
}

// modelFor returns the record of a model. If there is none, it creates one or
// returns nil.
func (r *record) modelFor(name string, create bool) *modelRecord {
	if r.models[name] == nil && create {
		r.models[name] = &modelRecord{}
	}
	return r.models[name]
}

// circuitFor returns the breaker of a format. If there is none, it creates one
// or returns nil.
func (r *record) circuitFor(format string, create bool) *breaker {
	if r.circuits[format] == nil && create {
		r.circuits[format] = &breaker{}
	}
	return r.circuits[format]
}

// chargeLocked reports whether an upstream error of the request is the first.
func (s *state) chargeLocked(request string) bool {
	if request == "" {
		return true
	}
	if slices.Contains(s.charged[:], request) {
		return false
	}
	s.charged[s.chargedAt] = request
	s.chargedAt = (s.chargedAt + 1) % len(s.charged)
	return true
}

func later(t, u time.Time) time.Time {
	if t.Before(u) {
		return u
	}
	return t
}

package keys

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usherproxy/usher/plugins/keys/internal/board"
	"github.com/usherproxy/usher/policy"
)

// retention is how long something learned is kept after it last mattered.
const retention = time.Hour

// state is what was learned. All instances of a plugin that use the same store
// share it, so it outlives each of their configurations.
//
// Decisions read published facts and take no lock, unless they have to do with
// a probe or a learned limit.
type state struct {
	places places

	mu       sync.Mutex
	subjects map[subjectID]*subject
	slots    map[slotID]*slot

	// probing are the subjects with probes that have not come back.
	probing []*subject

	// sweepAt is the number of subjects at which the next sweep is due.
	sweepAt int

	// charged are the latest requests that an upstream error was charged for.
	charged   [256]string
	chargedAt int

	// tell, if set, makes a fact known to other replicas. It does not block.
	tell func(board.Row)
}

func newState() *state {
	return &state{subjects: map[subjectID]*subject{}, slots: map[slotID]*slot{}}
}

// A subjectID names a subject: a provider, one of its accounts, a version of
// one of its keys, or that with an upstream model.
type subjectID struct {
	Kind     kind   `json:"kind"`
	Provider string `json:"provider"`
	Name     string `json:"name,omitzero"`
	Version  string `json:"version,omitzero"`
	Model    string `json:"model,omitzero"`
}

type kind string

const (
	kindProvider kind = "provider"
	kindAccount  kind = kind(policy.SubjectAccount)
	kindKey      kind = kind(policy.SubjectKey)
	kindModel    kind = kind(policy.SubjectModel)
)

// A subject is what was learned of a provider, an account, a key or a model.
type subject struct {
	id subjectID

	// known is what decisions see, or nil if nothing is known.
	known atomic.Pointer[Known]

	// usedAt is when a request was last sent there, in Unix nanoseconds.
	usedAt atomic.Int64

	// What follows is guarded by the mutex of the state. Slices in draft are
	// replaced, never changed.
	slots    []*slot // of an account, a key or a model
	draft    Known
	takenAt  time.Time // see adoptLocked
	refused  breaker
	circuits []circuit
	requests counter

	// latest is the last instant that matters.
	latest time.Time
}

// A circuit is the breaker of a format with its memory.
type circuit struct {
	format string
	breaker
}

// publishLocked makes the draft known.
func (s *subject) publishLocked() {
	k := s.draft
	k.Refused = s.refused.Breaker
	k.Circuits = nil
	for i := range s.circuits {
		if c := &s.circuits[i]; c.Open {
			k.Circuits = append(k.Circuits, Circuit{c.format, c.Breaker})
		}
	}
	k.summarize()
	s.known.Store(&k)
	for _, sl := range s.slots {
		sl.publishLocked()
	}
	s.touch(k.Quota.Until, k.Cooldown.Until, k.Refused.Until, k.Refused.ProbeUntil, k.Account.At, k.Account.Until)
	for _, c := range k.Circuits {
		s.touch(c.Until, c.ProbeUntil)
	}
	for _, w := range k.Windows {
		s.touch(w.ObservedAt, w.Resets)
	}
	for _, h := range k.Health {
		s.touch(h.At)
	}
}

// touch keeps the subject for as long as any of the instants matters.
func (s *subject) touch(instants ...time.Time) {
	for _, t := range instants {
		s.latest = later(s.latest, t)
	}
}

// keepsLocked reports whether what is known must not be forgotten though it may
// be old: what an operator said holds until an operator says something else.
func (s *subject) keepsLocked() bool {
	return s.draft.Account.Standing != "" && s.draft.Account.Standing != StandingGood || len(s.draft.Health) > 0
}

// circuitLocked returns the breaker of a format. If there is none, it creates
// one or returns nil.
func (s *subject) circuitLocked(format string, create bool) *breaker {
	for i := range s.circuits {
		if s.circuits[i].format == format {
			return &s.circuits[i].breaker
		}
	}
	if !create {
		return nil
	}
	s.circuits = append(s.circuits, circuit{format: format})
	return &s.circuits[len(s.circuits)-1].breaker
}

// probesLocked returns the open breakers of which the subject has given a probe
// away.
func (s *subject) probesLocked() []*breaker {
	var probes []*breaker
	if s.refused.Probing {
		probes = append(probes, &s.refused)
	}
	for i := range s.circuits {
		if s.circuits[i].Probing {
			probes = append(probes, &s.circuits[i].breaker)
		}
	}
	return probes
}

// A slot is where a candidate finds its subjects.
type slot struct {
	slotID
	provider, account, key, model *subject
	hash                          uint64 // of the ID
	boundAt                       time.Time

	// ownAccount is set if no other key is known to be of the account.
	ownAccount bool

	// own is what is known of all subjects but the provider, or nil if that is
	// nothing.
	own atomic.Pointer[own]
}

// own is what is known of the subjects that a candidate shares with few others.
type own struct{ account, key, model *Known }

// publishLocked makes what is known of the slot's subjects known.
func (sl *slot) publishLocked() {
	o := own{sl.account.known.Load(), sl.key.known.Load(), sl.model.known.Load()}
	if o != (own{}) {
		sl.own.Store(&o)
	}
}

// A slotID tells candidates apart, and the versions of their keys.
type slotID struct{ candidate, version, account string }

// is reports whether the slot is that of c.
func (sl *slot) is(c *policy.Candidate) bool {
	return sl != nil && sl.candidate == c.ID && sl.version == c.KeyVersion && sl.slotID.account == c.Account
}

// facts sets f to what is known of the candidate.
func (sl *slot) facts(f *Facts, c *policy.Candidate) {
	f.Candidate = c
	f.Provider, f.Account, f.Key, f.Model = sl.provider.known.Load(), nil, nil, nil
	if o := sl.own.Load(); o != nil {
		f.Account, f.Key, f.Model = o.account, o.key, o.model
	}
}

// subjects are those of the slot but the provider.
func (sl *slot) subjects() [3]*subject { return [...]*subject{sl.account, sl.key, sl.model} }

// about returns the subject that a provider's word is about.
func (sl *slot) about(about policy.Subject, otherwise *subject) *subject {
	switch about {
	case policy.SubjectAccount:
		return sl.account
	case policy.SubjectKey:
		return sl.key
	case policy.SubjectModel:
		return sl.model
	}
	return otherwise
}

// bindLocked returns the slot of a candidate.
func (s *state) bindLocked(now time.Time, c *policy.Candidate) *slot {
	id := slotID{c.ID, c.KeyVersion, c.Account}
	sl := s.slots[id]
	if sl != nil && sl.model.id == modelID(c) {
		return sl
	}
	account := accountID(c)
	sl = &slot{slotID: id, hash: hash(0, c.ID), boundAt: now}
	sl.ownAccount = account == subjectID{Kind: kindAccount, Provider: c.Provider, Name: c.Key}
	sl.provider = s.subjectLocked(now, subjectID{Kind: kindProvider, Provider: c.Provider})
	sl.account = s.subjectLocked(now, account)
	sl.key = s.subjectLocked(now, keyID(c.Provider, c.Key, c.KeyVersion))
	sl.model = s.subjectLocked(now, modelID(c))
	s.slots[id] = sl
	for _, sub := range sl.subjects() {
		sub.slots = append(sub.slots, sl)
	}
	sl.publishLocked()
	return sl
}

func keyID(provider, key, version string) subjectID {
	return subjectID{Kind: kindKey, Provider: provider, Name: key, Version: version}
}

func modelID(c *policy.Candidate) subjectID {
	return subjectID{Kind: kindModel, Provider: c.Provider, Name: c.Key, Version: c.KeyVersion, Model: c.Model}
}

// accountID returns the name of the account of a candidate's key: "name" of the
// same provider, or "provider/name".
func accountID(c *policy.Candidate) subjectID {
	id := subjectID{Kind: kindAccount, Provider: c.Provider, Name: cmp.Or(c.Account, c.Key)}
	if provider, name, ok := strings.Cut(id.Name, "/"); ok {
		id.Provider, id.Name = provider, name
	}
	return id
}

// subjectLocked returns the subject of that name, which it may have to create.
func (s *state) subjectLocked(now time.Time, id subjectID) *subject {
	if sub := s.subjects[id]; sub != nil {
		return sub
	}
	if len(s.subjects) >= s.sweepAt {
		s.sweepLocked(now)
	}
	sub := &subject{id: id, latest: now}
	s.subjects[id] = sub
	if early := s.subjects[anyVersion(id)]; early != nil && early != sub {
		s.adoptLocked(now, early, []*subject{sub})
	}
	return sub
}

// sweepLocked forgets what does not matter any more.
func (s *state) sweepLocked(now time.Time) {
	used := s.places.sweep(now.Add(-retention))
	kept := make(map[*subject]bool, len(s.subjects))
	maps.DeleteFunc(s.slots, func(_ slotID, sl *slot) bool {
		if !used[sl] && now.After(sl.boundAt.Add(retention)) {
			return true
		}
		kept[sl.provider], kept[sl.account], kept[sl.key], kept[sl.model] = true, true, true, true
		return false
	})
	maps.DeleteFunc(s.subjects, func(_ subjectID, sub *subject) bool {
		return !kept[sub] && !sub.keepsLocked() && now.After(sub.latest.Add(retention))
	})
	for _, sub := range s.subjects {
		sub.slots = slices.DeleteFunc(sub.slots, func(sl *slot) bool { return s.slots[sl.slotID] != sl })
	}
	s.sweepAt = max(64, 2*len(s.subjects))
}

// takeProbeLocked gives all open breakers of a candidate to the request.
func (s *state) takeProbeLocked(now time.Time, req *policy.Request, sl *slot, config *Config) {
	for _, sub := range sl.subjects() {
		took := false
		take := func(b *breaker, f fact) {
			if b == nil || !b.Open {
				return
			}
			b.take(now, req.ID, config.Breaker)
			took = true
			s.tellLocked(sub, f)
		}
		take(&sub.refused, factRefused)
		if sub.id.Kind == kindKey && config.Breaker.Failures > 0 {
			take(sub.circuitLocked(req.Format, false), circuitFact(req.Format))
		}
		if took {
			sub.publishLocked()
			if !slices.Contains(s.probing, sub) {
				s.probing = append(s.probing, sub)
			}
		}
	}
}

// giveBackLocked ends the probes of a request that will not probe any more,
// and forgets those that came back by themselves or were never heard of again.
func (s *state) giveBackLocked(now time.Time, request string, over bool) {
	s.probing = slices.DeleteFunc(s.probing, func(sub *subject) bool {
		lost := true
		for _, b := range sub.probesLocked() {
			if over && b.Probe == request {
				b.giveBack(now)
				sub.publishLocked()
				continue
			}
			lost = lost && now.After(b.ProbeUntil.Add(retention))
		}
		return lost
	})
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

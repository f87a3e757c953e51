package keys

import (
	"cmp"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

type statusInput struct {
	// Provider and Key limit the answer to one provider, or one of its keys.
	Provider string `json:"provider"`
	Key      string `json:"key"`
}

// A statusAnswer is all that is known.
type statusAnswer struct {
	At    time.Time       `json:"at"`
	Store storeStatus     `json:"store"`
	Keys  []subjectStatus `json:"keys"`

	// Providers and Accounts are those of whom something is known.
	Providers []subjectStatus `json:"providers"`
	Accounts  []subjectStatus `json:"accounts"`
}

// A storeStatus says where what is known is kept.
type storeStatus struct {
	Kind string `json:"kind"`

	// Connected says whether the store of several replicas can be reached, and
	// Since when that changed. While it cannot, each goes on with what it knows.
	Connected *bool     `json:"connected,omitzero"`
	Since     time.Time `json:"since,omitzero"`
	Error     string    `json:"error,omitzero"`

	// Untold is how many facts wait to be written.
	Untold int `json:"untold,omitzero"`
}

func (s *selector) storeStatus() storeStatus {
	if s.board == nil {
		return storeStatus{Kind: storeMemory}
	}
	b := s.board.Status()
	return storeStatus{Kind: storePostgres, Connected: &b.Connected, Since: b.Since, Error: b.Error, Untold: b.Untold}
}

// A subjectStatus is what is known of one subject. What is past is still shown;
// Rests says what counts now.
type subjectStatus struct {
	Provider string `json:"provider,omitzero"`
	Account  string `json:"account,omitzero"`
	Key      string `json:"key,omitzero"`
	Version  string `json:"version,omitzero"`
	Model    string `json:"model,omitzero"`

	// Rests lists the reasons for which the subject is left alone now.
	Rests []rest `json:"rests,omitzero"`

	Quota    *Hold              `json:"quota,omitzero"`
	Cooldown *Hold              `json:"cooldown,omitzero"`
	Windows  []observation      `json:"windows,omitzero"`
	Standing *AccountState      `json:"standing,omitzero"`
	Refused  *Breaker           `json:"refused,omitzero"`
	Circuits map[string]Breaker `json:"circuits,omitzero"`
	Health   []Health           `json:"health,omitzero"`
	Learned  *Learned           `json:"learned,omitzero"`

	// Requests is how many were sent to the key within the last minute, and
	// UsedAt when it was last chosen, if the order asks for that.
	Requests int       `json:"requests,omitzero"`
	UsedAt   time.Time `json:"used_at,omitzero"`

	Models []subjectStatus `json:"models,omitzero"`
}

// A rest is a verdict on a subject, whatever the request.
type rest struct {
	Reason policy.Reason `json:"reason"`
	Detail string        `json:"detail,omitzero"`
	Format string        `json:"format,omitzero"`
	Until  time.Time     `json:"until,omitzero"`
}

// status tells all that is known of whom an operator asks.
func (s *selector) status(now time.Time, in statusInput) statusAnswer {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	answer := statusAnswer{At: now, Store: s.storeStatus(), Providers: []subjectStatus{}, Accounts: []subjectStatus{}, Keys: []subjectStatus{}}
	models := map[subjectID][]subjectStatus{}
	for id, sub := range s.state.subjects {
		if in.Provider != "" && in.Provider != id.Provider || in.Key != "" && (id.Name != in.Key || id.Kind == kindAccount) {
			continue
		}
		if (id.Kind == kindProvider || id.Kind == kindAccount) && sub.known.Load() == nil {
			continue
		}
		told := s.subjectStatusLocked(now, sub)
		switch id.Kind {
		case kindProvider:
			answer.Providers = append(answer.Providers, told)
		case kindAccount:
			answer.Accounts = append(answer.Accounts, told)
		case kindKey:
			answer.Keys = append(answer.Keys, told)
		case kindModel:
			key := keyID(id.Provider, id.Name, id.Version)
			models[key] = append(models[key], told)
		}
	}
	for i := range answer.Keys {
		k := &answer.Keys[i]
		k.Models = models[keyID(k.Provider, k.Key, k.Version)]
		slices.SortFunc(k.Models, compareStatus)
		for j := range k.Models { // they stand below their key
			k.Models[j].Provider, k.Models[j].Key, k.Models[j].Version = "", "", ""
		}
	}
	for _, list := range [][]subjectStatus{answer.Providers, answer.Accounts, answer.Keys} {
		slices.SortFunc(list, compareStatus)
	}
	return answer
}

func compareStatus(a, b subjectStatus) int {
	return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Account, b.Account),
		cmp.Compare(a.Key, b.Key), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Model, b.Model))
}

func (s *selector) subjectStatusLocked(now time.Time, sub *subject) subjectStatus {
	d := &sub.draft
	told := subjectStatus{
		Provider: sub.id.Provider, Version: sub.id.Version, Model: sub.id.Model,
		Quota: orNil(d.Quota), Cooldown: orNil(d.Cooldown), Standing: orNil(d.Account),
		Refused: orNil(sub.refused.Breaker), Learned: orNil(d.Learned), Health: d.Health,
		Rests: s.restsLocked(now, sub), Requests: sub.requests.count(now),
	}
	if sub.id.Kind == kindAccount {
		told.Account = sub.id.Name
	} else {
		told.Key = sub.id.Name
	}
	for _, w := range d.Windows {
		told.Windows = append(told.Windows, observationOf(w))
	}
	for i := range sub.circuits {
		c := &sub.circuits[i]
		if c.Breaker == (Breaker{}) {
			continue // it has never opened
		}
		if told.Circuits == nil {
			told.Circuits = map[string]Breaker{}
		}
		told.Circuits[c.format] = c.Breaker
	}
	if at := sub.usedAt.Load(); at != 0 {
		told.UsedAt = time.Unix(0, at).UTC()
	}
	return told
}

// orNil returns a pointer to a fact, or nil if it says nothing.
func orNil[T comparable](f T) *T {
	var nothing T
	if f == nothing {
		return nil
	}
	return &f
}

// restsLocked judges the subject alone, by the rules of decisions.
func (s *selector) restsLocked(now time.Time, sub *subject) []rest {
	known := sub.known.Load()
	if known == nil {
		return nil
	}
	f := Facts{
		Request: &policy.Request{}, Candidate: &policy.Candidate{},
		KeyRequests: sub.requests.count(now), ModelRequests: sub.requests.count(now),
		QuotaReserve: s.config.QuotaReserve / 100, NoCircuits: s.config.Breaker.Failures == 0,
	}
	switch sub.id.Kind {
	case kindProvider:
		f.Provider = known
	case kindAccount:
		f.Account = known
	case kindKey:
		f.Key = known
	case kindModel:
		f.Model = known
	}
	var rests []rest
	add := func(why policy.Why) {
		if r := (rest{why.Reason, why.Detail, f.Request.Format, why.Until}); why.Reason != "" && !slices.Contains(rests, r) {
			rests = append(rests, r)
		}
	}
	for i := range rules {
		add(rules[i].match(now, &f))
	}
	for _, c := range known.Circuits {
		f.Request.Format = c.Format
		add(circuitOpen(now, &f))
	}
	for _, h := range known.Health {
		f.Request.Format = h.Format
		add(healthZero(now, &f))
	}
	return rests
}

package caddymodule

import (
	"cmp"
	"net/http"
	"slices"
	"sync"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// origins remembers which key gave which answer, so that what refers to the
// answer goes where it is kept. It is shared by all sites and outlives reloads,
// but not this process; what it does not know is looked for. It holds between
// keptOrigins and twice as many.
type origins struct {
	mu         sync.Mutex
	young, old map[string]string // provider/key by the ID of the answer
}

// keptOrigins bounds the memory to some 20 MiB.
const keptOrigins = 50_000

// learn notes that key, which is provider/key, gave the answer.
func (o *origins) learn(id, key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.young == nil || len(o.young) >= keptOrigins {
		o.old, o.young = o.young, make(map[string]string)
	}
	o.young[id] = key
}

// of returns the key that gave the answer, or the empty string.
func (o *origins) of(id string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return cmp.Or(o.young[id], o.old[id])
}

// accountOf names the account of a candidate, which is what holds things.
func accountOf(c policy.Candidate) string { return cmp.Or(c.Account, keyOf(c)) }

// keyCandidate returns the candidate for requests that name no model.
func keyCandidate(p *Provider, k *Key) policy.Candidate {
	c := candidate(p, k, new(Model), Serve{})
	c.ID = keyOf(c)
	return c
}

// provisionKeys prepares the candidates of requests that name no model.
func (h *Handler) provisionKeys() error {
	h.holders, h.keys, h.allKeys = make(map[string]*model), make(map[string]*model), make(map[string]*model)
	inService := make(map[string][]policy.Candidate) // by format
	for i := range h.Providers {
		p := &h.Providers[i]
		for j := range p.Keys {
			c := keyCandidate(p, &p.Keys[j])
			only, err := host.NewCatalog([]policy.Candidate{c})
			if err != nil {
				return err
			}
			h.keys[c.ID] = &model{catalog: only}
			if !c.Disabled {
				inService[p.Format] = append(inService[p.Format], c)
			}
		}
	}
	for spoken, candidates := range inService {
		all, err := host.NewCatalog(candidates)
		if err != nil {
			return err
		}
		h.allKeys[spoken] = &model{catalog: all}
	}
	for _, f := range h.Files {
		p := h.providers[f.Provider]
		k, _ := p.holder(f.Key) // check has seen it
		h.holders[p.Format] = h.keys[p.Name+"/"+k.Name]
	}
	return nil
}

// everyModel returns all that requests may be sent to.
func (h *Handler) everyModel() []*model {
	var all []*model
	for _, m := range h.models {
		all = append(all, m)
	}
	for _, m := range h.keys {
		all = append(all, m)
	}
	for _, m := range h.allKeys {
		all = append(all, m)
	}
	return all
}

// find sets what the request may be sent to: who serves its model, holds its
// files, or gave the answer that it is about. It refuses it if nobody does.
func (r *run) find() *format.Refusal {
	refs := r.facts.References
	origin := r.h.app.shared.origins.of(refs.Answer)
	holder := r.h.holders[r.op.Format]
	switch r.op.Kind {
	case format.Stored:
		r.model = holder
	case format.FollowUp:
		r.model = r.h.keys[origin]
		if r.model == nil {
			r.model, r.searches = r.h.allKeys[r.op.Format], true
		}
	default:
		r.model = r.h.models[modelKey{r.op.Format, r.facts.Model}]
		if r.model == nil {
			refusal := format.UnknownModel(r.facts.Model)
			return &refusal
		}
		if from := r.h.keys[origin]; from != nil {
			r.accounts = append(r.accounts, accountOf(from.catalog.Candidates[0]))
		}
		r.searches = refs.Answer != "" && len(r.accounts) == 0
		if refs.Stored && holder != nil {
			r.accounts = append(r.accounts, accountOf(holder.catalog.Candidates[0]))
		}
	}
	if r.model == nil {
		refusal := format.UnknownRoute()
		return &refusal
	}
	return nil
}

// offered returns the candidates of the request, which must not be changed:
// those of the accounts that have what it refers to.
func (r *run) offered() []policy.Candidate {
	if len(r.accounts) == 0 {
		return r.model.catalog.Candidates
	}
	var offered []policy.Candidate
	for _, c := range r.model.catalog.Candidates {
		if !slices.ContainsFunc(r.accounts, func(account string) bool { return account != accountOf(c) }) {
			offered = append(offered, c)
		}
	}
	return offered
}

// elsewhere reports whether what the request refers to is not at the candidate
// of a, but may be at another one: nobody has told this process where it is.
func (a *attempt) elsewhere() bool {
	return a.r.searches && a.status >= http.StatusBadRequest && a.r.op.Elsewhere(a.status, a.errorBody)
}

// noteOrigin remembers who gives the answer, if later requests may refer to it.
func (a *attempt) noteOrigin() {
	if a.meter == nil || a.disposition != policy.OK {
		return
	}
	if id := a.meter.ID(); id != "" {
		a.r.h.app.shared.origins.learn(id, keyOf(a.candidate))
	}
}

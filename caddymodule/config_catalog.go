package caddymodule

import (
	"maps"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A catalog holds the candidates of a configuration.
type catalog struct {
	// all are the candidates in the order of the configuration: by model, then
	// by provider, then by key. A model that is public under two names has
	// candidates of equal ID and different scopes, one for each name.
	all []policy.Candidate

	// models holds the place of each public model's candidates in all.
	models map[string]span
}

// A span is a range of indexes, first included and end excluded.
type span struct{ first, end int }

// of returns the candidates that serve the public model, which are to be read
// only, and whether there is such a model.
func (c *catalog) of(model string) ([]policy.Candidate, bool) {
	s, ok := c.models[model]
	return slices.Clip(c.all[s.first:s.end]), ok
}

// catalog returns the candidates of c, which must have passed check.
func (c *Config) catalog() *catalog {
	cat := &catalog{models: make(map[string]span)}
	for i := range c.Models {
		m := &c.Models[i]
		first := len(cat.all)
		for _, s := range m.Serve {
			cat.all = append(cat.all, c.offers(m, s)...)
		}
		cat.models[m.Name] = span{first, len(cat.all)}
	}
	return cat
}

// offers returns the candidates by which s serves m.
func (c *Config) offers(m *Model, s Serve) []policy.Candidate {
	i := slices.IndexFunc(c.Providers, func(p Provider) bool { return p.Name == s.Provider })
	p := &c.Providers[i]
	var offers []policy.Candidate
	for j := range p.Keys {
		if k := &p.Keys[j]; k.serves(m.Name) {
			offers = append(offers, candidate(p, k, m, s))
		}
	}
	return offers
}

// candidate returns the candidate that serves m as s says, with the key k.
func candidate(p *Provider, k *Key, m *Model, s Serve) policy.Candidate {
	labels := maps.Clone(p.Labels)
	if labels == nil && len(k.Labels) > 0 {
		labels = make(map[string]string)
	}
	maps.Copy(labels, k.Labels)
	key, upstream := p.Name+"/"+k.Name, s.upstream(m)
	return policy.Candidate{
		ID:            key + "/" + upstream,
		Provider:      p.Name,
		Key:           k.Name,
		KeyVersion:    k.version,
		Account:       p.accountOf(k),
		Model:         upstream,
		Priority:      p.priorityOf(k),
		Weight:        k.weight(),
		Disabled:      k.Disabled,
		ContextTokens: s.window(m),
		Price:         s.price(m),
		Labels:        labels,
		Scopes: slices.Concat(
			scopes("provider:"+p.Name, p.Limits),
			scopes("key:"+key, k.Limits),
			scopes("model:"+m.Name, m.Limits),
		),
	}
}

// scopes returns the scopes of the given ID, one for each limit.
func scopes(id string, limits []Limit) []policy.Scope {
	scopes := make([]policy.Scope, len(limits))
	for i, l := range limits {
		scopes[i] = policy.Scope{
			ID:     id,
			Kind:   policy.ScopeKind(l.Kind),
			Limit:  l.Limit,
			Window: time.Duration(l.Window),
		}
	}
	return scopes
}

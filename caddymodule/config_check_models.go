package caddymodule

import (
	"fmt"
	"slices"
)

func (c *Config) checkModels(r reporter) {
	if len(c.Models) == 0 {
		r.errorf("no model is declared, so nothing can be served; add one with: model NAME PROVIDER")
	}
	checkUnique(r, "models", "model", c.modelNames())
	for i := range c.Models {
		m := &c.Models[i]
		r := r.item("models", i, named("model", m.Name))
		checkName(r, wideName, m.Name)
		if m.ContextTokens < 0 {
			r.in("context_tokens", "context").errorf("must be at least 0, not %d", m.ContextTokens)
		}
		checkPrice(r, m.Price)
		checkLimits(r, m.Limits)
		c.checkFallback(r, m)
		if len(m.Serve) == 0 {
			r.errorf("nothing serves it; add: serve PROVIDER")
		}
		for j, s := range m.Serve {
			r := r.item("serve", j, fmt.Sprintf("serve %q", s.Provider))
			c.checkServe(r, m, s)
			checkPrice(r, s.Price)
			if slices.ContainsFunc(m.Serve[:j], func(o Serve) bool {
				return o.Provider == s.Provider && o.upstream(m) == s.upstream(m)
			}) {
				r.errorf("served twice as %s; remove one", s.upstream(m))
			}
		}
	}
}

func (c *Config) checkFallback(r reporter, m *Model) {
	for i, name := range m.Fallback {
		r := r.in("fallback", fmt.Sprintf("fallback %q", name))
		switch {
		case name == m.Name:
			r.errorf("a model is no fallback for itself; remove it")
		case slices.Contains(m.Fallback[:i], name):
			r.errorf("listed twice; remove one")
		case !slices.Contains(c.modelNames(), name):
			r.errorf("no such model; %s", hint(name, c.modelNames()))
		}
	}
}

func checkPrice(r reporter, p *Price) {
	if p == nil {
		return
	}
	for _, price := range []float64{p.Input, p.Output} {
		if price < 0 {
			r.in("price", "price").errorf("must be at least 0, not %g", price)
		}
	}
}

func (c *Config) checkServe(r reporter, m *Model, s Serve) {
	if s.Model != "" {
		checkName(r, wideName, s.Model)
	}
	if s.ContextTokens < 0 {
		r.in("context_tokens", "context").errorf("must be at least 0, not %d", s.ContextTokens)
	}
	names := c.providerNames()
	i := slices.Index(names, s.Provider)
	if i < 0 {
		r.errorf("no such provider; %s", hint(s.Provider, names))
		return
	}
	keys := c.Providers[i].Keys
	if len(keys) > 0 && !slices.ContainsFunc(keys, func(k Key) bool { return k.serves(m.Name) }) {
		r.errorf("none of its keys may serve the model; add the model to the models of a key")
	}
}

package caddymodule

import (
	"cmp"
	"slices"

	"github.com/usherproxy/usher/policy"
)

// Model is a public model: a name that callers may ask for, and who serves it.
type Model struct {
	// The public name.
	Name string `json:"name"`

	// Who serves the model. At least one. Their order counts only for `order
	// priority` of the policy `keys`.
	Serve []Serve `json:"serve,omitempty"`

	// The size of the model's context window in tokens. Set it so that prompts
	// that do not fit are not sent. Default: 0, not known.
	ContextTokens int64 `json:"context_tokens,omitempty"`

	// What the model costs, for those that serve it and say nothing else. Set
	// it for policies that go by cost. Default: not known.
	Price *Price `json:"price,omitempty"`

	// The models that serve a request in place of this one when it cannot: in
	// this order, and only before anything of an answer has reached the caller.
	// Theirs in turn are not tried. Default: none.
	Fallback []string `json:"fallback,omitempty"`

	// The limits of the model, over all that serve it. Default: none.
	Limits []Limit `json:"limits,omitempty"`
}

// Serve says that a provider serves a model.
type Serve struct {
	// The name of the provider.
	Provider string `json:"provider"`

	// What the provider calls the model. Default: the public name.
	Model string `json:"model,omitempty"`

	// The size of the context window there. Default: that of the model.
	ContextTokens int64 `json:"context_tokens,omitempty"`

	// What the model costs there. Default: that of the model.
	Price *Price `json:"price,omitempty"`
}

// Price is what a model costs for a million tokens, in a currency of your
// choice, which must be the same everywhere. 0 for both means not known.
type Price struct {
	// The price of a million tokens of input.
	Input float64 `json:"input"`

	// The price of a million tokens of output.
	Output float64 `json:"output"`
}

// window returns the size of the context window of m as s serves it, or 0.
func (s Serve) window(m *Model) int64 { return cmp.Or(s.ContextTokens, m.ContextTokens) }

// upstream returns what s's provider calls the model m.
func (s Serve) upstream(m *Model) string {
	if s.Model != "" {
		return s.Model
	}
	return m.Name
}

// price returns what the model m costs at s's provider.
func (s Serve) price(m *Model) policy.Price {
	for _, p := range []*Price{s.Price, m.Price} {
		if p != nil {
			return policy.Price(*p)
		}
	}
	return policy.Price{}
}

// serves reports whether k may serve the public model of the given name.
func (k *Key) serves(model string) bool {
	return len(k.Models) == 0 || slices.Contains(k.Models, model)
}

package caddymodule

import (
	"slices"
)

// Files says who holds what a provider's account stores.
type Files struct {
	// The name of the provider.
	Provider string `json:"provider"`

	// The name of the key. Keys of one account hold the same. Default: the
	// provider's first key that is in service.
	Key string `json:"key,omitempty"`
}

// holder returns the key of the given name, or else the first one, which must be
// in service.
func (p *Provider) holder(name string) (*Key, bool) {
	i := slices.IndexFunc(p.Keys, func(k Key) bool { return !k.Disabled && (name == "" || k.Name == name) })
	if i < 0 {
		return nil, false
	}
	return &p.Keys[i], true
}

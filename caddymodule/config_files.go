package caddymodule

import (
	"fmt"
	"slices"

	"github.com/usherproxy/usher/internal/format"
)

// Files says who holds what a provider's account stores.
type Files struct {
	// The name of the provider.
	Provider string `json:"provider"`

	// The name of the key. Keys of one account hold the same. Default: the
	// provider's first key that is in service.
	Key string `json:"key,omitempty"`
}

// files parses an entry of Files.
func (p *parser) files(c *Config) option {
	return func() error {
		args, err := p.begin(element("/files", len(c.Files)), "files <provider> [<key>]", 1, 2)
		if err != nil {
			return err
		}
		f := Files{Provider: args[0]}
		if len(args) > 1 {
			f.Key = args[1]
		}
		c.Files = append(c.Files, f)
		return nil
	}
}

func (c *Config) checkFiles(r reporter) {
	held := make(map[string]string) // who holds the files of a format
	names := c.providerNames()
	for i, f := range c.Files {
		r := r.item("files", i, fmt.Sprintf("files %q", f.Provider))
		at := slices.Index(names, f.Provider)
		if at < 0 {
			r.errorf("no such provider; %s", hint(f.Provider, names))
			continue
		}
		p := &c.Providers[at]
		spoken := p.Format
		if spoken == "" {
			spoken = format.OpenAI
		}
		if other, ok := held[spoken]; ok {
			r.errorf("provider %s holds the files of the format %s already; remove one", other, spoken)
		}
		held[spoken] = f.Provider
		if spoken == format.Gemini {
			r.errorf("files of the format %s are not served", spoken)
		}
		if _, ok := p.holder(f.Key); !ok && len(p.Keys) > 0 {
			r.errorf("%s", p.noHolder(f.Key))
		}
	}
}

// noHolder says that the provider has no such key in service, and which it has.
func (p *Provider) noHolder(key string) string {
	var names []string
	for _, k := range p.Keys {
		if !k.Disabled {
			names = append(names, k.Name)
		}
	}
	if len(names) == 0 {
		return "the provider has no key that is in service"
	}
	return fmt.Sprintf("the provider has no key %q that is in service; %s", key, hint(key, names))
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

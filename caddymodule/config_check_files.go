package caddymodule

import (
	"fmt"
	"slices"

	"github.com/usherproxy/usher/internal/format"
)

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

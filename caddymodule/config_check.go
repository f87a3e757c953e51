package caddymodule

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

// check returns everything that is wrong with c: one error for each fault, in
// the order of the file, each saying what to change. Plugins are the names of
// the policies that plugins offer. It has no effects and reads no secrets.
func (c *Config) check(plugins []string) error {
	p := &problems{source: c.Source}
	r := p.root()
	c.checkProviders(r)
	c.checkModels(r)
	c.checkFiles(r)
	c.checkCallers(r)
	c.checkPolicies(r, plugins)
	checkLimits(r, c.Limits)
	if c.MaxBody < 0 {
		r.in("max_body", "max_body").errorf("must be at least 1 byte")
	}
	checkDuration(r.in("timeout", "timeout"), c.Timeout)
	checkDuration(r.in("heartbeat", "heartbeat"), c.Heartbeat)
	checkDuration(r.in("session/idle", "session idle"), c.Session.Idle)
	checkDuration(r.in("session/age", "session age"), c.Session.Age)
	if m := c.Session.Model; m != "" && !slices.Contains(c.modelNames(), m) {
		r.in("session/model", fmt.Sprintf("session model %q", m)).errorf("no such model; %s", hint(m, c.modelNames()))
	}
	if c.Attempts < 0 || c.Attempts > maxAttempts {
		r.in("attempts", "attempts").errorf("must be between 1 and %d, not %d", maxAttempts, c.Attempts)
	}
	return p.err()
}

// longestDuration is beyond all use, and short enough for any instant that lies
// so far ahead to be counted.
const longestDuration = caddy.Duration(36500 * 24 * time.Hour)

func checkDuration(r reporter, d caddy.Duration) {
	switch {
	case d < 0:
		r.errorf("must be longer than 0")
	case d > longestDuration:
		r.errorf("must be at most 36500d")
	}
}

func (c *Config) checkProviders(r reporter) {
	if len(c.Providers) == 0 {
		r.errorf("no provider is declared; add one with: provider NAME URL { key NAME SECRET }")
	}
	checkUnique(r, "providers", "provider", c.providerNames())
	models := c.modelNames()
	for i := range c.Providers {
		p := &c.Providers[i]
		r := r.item("providers", i, named("provider", p.Name))
		checkName(r, plainName, p.Name)
		if p.Format != "" && !slices.Contains(formats, p.Format) {
			r.in("format", fmt.Sprintf("format %q", p.Format)).errorf("no such format; %s", hint(p.Format, formats))
		}
		p.checkOpenAI(r, "api_version", p.APIVersion != "")
		p.checkOpenAI(r, "stream_usage", p.StreamUsage)
		checkURL(r.in("url", "url"), p.URL)
		checkLabels(r, p.Labels)
		checkLimits(r, p.Limits)
		p.checkTimeouts(r)
		p.checkKeys(r, models)
	}
}

func (p *Provider) checkTimeouts(r reporter) {
	for _, t := range []struct {
		name string
		d    caddy.Duration
	}{{"connect", p.Timeouts.Connect}, {"first_event", p.Timeouts.FirstEvent}, {"idle", p.Timeouts.Idle}} {
		checkDuration(r.in("timeouts/"+t.name, "timeout "+t.name), t.d)
	}
	if p.Timeouts.Connect != 0 && len(p.TransportRaw) > 0 {
		r.in("timeouts/connect", "timeout connect").
			errorf("the transport of the provider has this time; write: transport http { dial_timeout DURATION }")
	}
}

// checkOpenAI checks that an option that only OpenAI's format has is set for a
// provider that speaks it.
func (p *Provider) checkOpenAI(r reporter, option string, set bool) {
	if set && p.Format != "" && p.Format != format.OpenAI {
		r.in(option, option).errorf("is for the format %s only, and this provider's is %s", format.OpenAI, p.Format)
	}
}

// checkURL never shows the URL: what is wrong with it may be a password.
func checkURL(r reporter, s string) {
	u, err := url.Parse(s)
	switch {
	case s == "":
		r.errorf("is missing")
	case err != nil:
		r.errorf("is no valid URL; write it like https://api.example.com")
	case u.Scheme != "http" && u.Scheme != "https":
		r.errorf("must begin with http:// or https://")
	case u.Hostname() == "":
		r.errorf("has no host")
	case u.User != nil:
		r.errorf("must not hold a user or password; use a key, or header_up Authorization")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		r.errorf("must not hold a query or fragment")
	}
}

func checkLabels(r reporter, labels map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if !plainName.pattern.MatchString(name) {
			r.in("labels/"+pointerEscaper.Replace(name), named("label", name)).
				errorf("a label consists of %s", plainName.words)
		}
	}
}

func (p *Provider) checkKeys(r reporter, models []string) {
	if len(p.Keys) == 0 {
		r.errorf(`no key is declared; add one with "key NAME {env.VARIABLE}", or with "key NAME none" if the provider wants no credential`)
	}
	names := make([]string, len(p.Keys))
	for i := range p.Keys {
		k := &p.Keys[i]
		names[i] = k.Name
		r := r.item("keys", i, named("key", k.Name))
		checkName(r, plainName, k.Name)
		if k.Secret != secretNone {
			checkSecret(r, k.Secret)
		}
		if k.weight() < 0 {
			r.in("weight", "weight").errorf("must be at least 0, not %d", k.weight())
		}
		if k.Account != "" && !accountName.pattern.MatchString(k.Account) {
			r.in("account", fmt.Sprintf("account %q", k.Account)).
				errorf("an account is a name, or the name of a provider, / and a name; names consist of %s", plainName.words)
		}
		checkLabels(r, k.Labels)
		checkLimits(r, k.Limits)
		for _, m := range k.Models {
			if !slices.Contains(models, m) {
				r.in("models", fmt.Sprintf("models %q", m)).errorf("no such model; %s", hint(m, models))
			}
		}
	}
	checkUnique(r, "keys", "key", names)
}

func checkSecret(r reporter, secret string) {
	if err := secretSyntax(secret); err != nil {
		r.errorf("%w", err)
	}
}

func checkLimits(r reporter, limits []Limit) {
	for i, l := range limits {
		r := r.item("limits", i, "limit "+l.Kind)
		kind := policy.ScopeKind(l.Kind)
		switch {
		case !slices.Contains(policy.ScopeKinds(), kind):
			r.errorf("no such kind; %s", hint(l.Kind, limitKinds()))
		case kind == policy.ScopeConcurrency && l.Window != 0:
			r.errorf("takes no window; write: limit concurrency N")
		case kind != policy.ScopeConcurrency && l.Window <= 0:
			r.errorf("needs a window longer than 0; write it like: limit %s 100/1m", l.Kind)
		case l.Window > longestDuration:
			r.errorf("the window must be at most 36500d")
		}
		if l.Limit < 1 {
			r.errorf("must be at least 1, not %d; to use something no more, disable or remove it", l.Limit)
		}
		for _, other := range limits[:i] {
			if other.Kind == l.Kind && other.Window == l.Window {
				r.errorf("set twice for the same window; remove one")
				break
			}
		}
	}
}

// limitKinds lists the kinds of limit.
func limitKinds() []string {
	var kinds []string
	for _, k := range policy.ScopeKinds() {
		kinds = append(kinds, string(k))
	}
	return kinds
}

func (c *Config) providerNames() []string {
	names := make([]string, len(c.Providers))
	for i := range c.Providers {
		names[i] = c.Providers[i].Name
	}
	return names
}

func (c *Config) modelNames() []string {
	names := make([]string, len(c.Models))
	for i := range c.Models {
		names[i] = c.Models[i].Name
	}
	return names
}

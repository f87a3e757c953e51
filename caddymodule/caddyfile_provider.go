package caddymodule

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
)

// provider parses a provider and appends it to c's.
func (p *parser) provider(c *Config) error {
	at := element("/providers", len(c.Providers))
	args, err := p.begin(at, "provider <name> <url> { ... }", 2, 2)
	if err != nil {
		return err
	}
	pr := Provider{Name: args[0], URL: args[1]}
	err = p.block(options{
		"format":        p.text(at+"/format", "format <format>", &pr.Format),
		"stream_usage":  p.flag(at+"/stream_usage", "stream_usage", &pr.StreamUsage),
		"api_version":   p.text(at+"/api_version", "api_version <version>", &pr.APIVersion),
		"priority":      p.number(at+"/priority", "priority <number>", &pr.Priority),
		"label":         p.label(at, &pr.Labels),
		"limit":         p.limit(at, &pr.Limits),
		"header_up":     p.header("header_up", &pr.HeaderUp),
		"header_down":   p.header("header_down", &pr.HeaderDown),
		"transport":     p.transport(at+"/transport", &pr.TransportRaw),
		"trace_context": p.flag(at+"/trace_context", "trace_context", &pr.TraceContext),
		"timeout":       p.timeout(at+"/timeouts", &pr.Timeouts),
		"key":           func() error { return p.key(at, &pr) },
	})
	c.Providers = append(c.Providers, pr)
	return err
}

// key parses a key and appends it to pr's.
func (p *parser) key(at string, pr *Provider) error {
	at = element(at+"/keys", len(pr.Keys))
	args, err := p.begin(at, "key <name> {env.<variable>}|{file.<path>}|none", 2, 2)
	if err != nil {
		return err
	}
	k := Key{Name: args[0], Secret: args[1]}
	if k.Secret != secretNone {
		if err := secretSyntax(k.Secret); err != nil {
			return p.WrapErr(err)
		}
	}
	err = p.block(options{
		"priority": p.optional(at+"/priority", "priority <number>", &k.Priority),
		"weight":   p.optional(at+"/weight", "weight <number>", &k.Weight),
		"label":    p.label(at, &k.Labels),
		"limit":    p.limit(at, &k.Limits),
		"account":  p.text(at+"/account", "account [<provider>/]<name>", &k.Account),
		"models":   p.words(at+"/models", "models <public models...>", &k.Models),
		"disabled": p.flag(at+"/disabled", "disabled", &k.Disabled),
	})
	pr.Keys = append(pr.Keys, k)
	return err
}

// timeout parses one of the times that parts of an attempt may take.
func (p *parser) timeout(pointer string, to *Timeouts) option {
	return func() error {
		const usage = "timeout connect|first_event|idle <duration>"
		args, err := p.args(usage, 2, 2)
		if err != nil {
			return err
		}
		parts := map[string]*caddy.Duration{"connect": &to.Connect, "first_event": &to.FirstEvent, "idle": &to.Idle}
		d, ok := parts[args[0]]
		if !ok {
			return p.Errf("no such timeout %q; %s", args[0], hint(args[0], slices.Sorted(maps.Keys(parts))))
		}
		if err := p.mark(pointer + "/" + args[0]); err != nil {
			return err
		}
		return p.parseDuration(args[1], usage, d)
	}
}

// header parses a change to a header, as Caddy's reverse_proxy does.
func (p *parser) header(name string, to **headers.HeaderOps) option {
	return func() error {
		args, err := p.args(name+" [+|-]<field> [<value|regexp> [<replacement>]]", 1, 3)
		if err != nil {
			return err
		}
		if *to == nil {
			*to = new(headers.HeaderOps)
		}
		var value string
		var replacement *string
		if len(args) > 1 {
			value = args[1]
		}
		if len(args) > 2 {
			replacement = &args[2]
		}
		return p.wrap(headers.CaddyfileHeaderOp(*to, args[0], value, replacement))
	}
}

// transport parses a transport of Caddy's reverse_proxy.
func (p *parser) transport(pointer string, to *json.RawMessage) option {
	return func() error {
		if err := p.mark(pointer); err != nil {
			return err
		}
		if !p.NextArg() {
			return p.Errf("wrong number of arguments; write: transport <name> { ... }")
		}
		name := p.Val()
		t, err := caddyfile.UnmarshalModule(p.Dispenser, "http.reverse_proxy.transport."+name)
		if err != nil {
			return err
		}
		if _, ok := t.(http.RoundTripper); !ok {
			return p.Errf("%s is no transport", name)
		}
		*to = caddyconfig.JSONModuleObject(t, "protocol", name, nil)
		return nil
	}
}

package caddymodule

import (
	"math"
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
)

// UnmarshalCaddyfile sets up the configuration from Caddyfile tokens. Syntax:
//
//	usher [<matcher>] {
//		# who serves: see Provider and Key for what each option means
//		provider <name> <url> {
//			format      <format>
//			api_version <version>
//			stream_usage
//			priority    <number>
//			label       <name> <value>
//			limit       concurrency <limit>
//			limit       requests|tokens <limit>/<window>
//			header_up   [+|-]<field> [<value|regexp> [<replacement>]]
//			header_down [+|-]<field> [<value|regexp> [<replacement>]]
//			transport   <name> {
//				...
//			}
//			trace_context
//			timeout     connect|first_event|idle <duration>
//			key <name> {env.<variable>}|{file.<path>}|none {
//				priority <number>
//				weight   <number>
//				label    <name> <value>
//				limit    ...
//				account  [<provider>/]<name>
//				models   <public models...>
//				disabled
//			}
//		}
//		model <public name> [<provider> [<upstream model>]] {
//			serve    <provider> [<upstream model>] {
//				context <tokens>
//				price   <input> <output>
//			}
//			context  <tokens>
//			price    <input> <output>
//			fallback <public models...>
//			limit    ...
//		}
//
//		# who holds files and the like: see Files
//		files <provider> [<key>]
//
//		# who calls
//		caller <id> {
//			key        {env.<variable>}|{file.<path>}
//			key_sha256 <64 hexadecimal digits>
//			group      <name>
//			priority   <number>
//			limit      ...
//		}
//		caller_id <placeholder>
//		group <name> {
//			limit ...
//		}
//		limit ...
//
//		# who decides: see PolicyUse
//		select <policy>|none {
//			timeout  <duration>
//			on_error open|closed
//			<options of the policy...>
//		}
//		admit <policy>|none {
//			...
//		}
//
//		max_body  <size>
//		timeout   <duration>
//		attempts  <number>
//		heartbeat <duration>
//		session   {
//			idle  <duration>
//			age   <duration>
//			model <public name>
//		}
//	}
//
// The options provider, model, files, caller, group, limit, select, admit, key,
// serve, label, timeout of a provider, header_up and header_down may be repeated. An option of a
// policy becomes JSON: alone it is true, with one value it is that value, with
// several a list, with a block an object. An unquoted number, true or false is
// a JSON number or boolean, everything else a string.
func (c *Config) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	p := newParser(d)
	c.Source = p.source
	d.Next()
	if _, err := p.begin("", "usher [<matcher>] { ... }", 0, 0); err != nil {
		return err
	}
	return p.block(options{
		"provider":  func() error { return p.provider(c) },
		"model":     func() error { return p.model(c) },
		"caller":    func() error { return p.caller(c) },
		"caller_id": p.text("/caller_id", "caller_id <placeholder>", &c.CallerID),
		"group":     func() error { return p.group(c) },
		"limit":     p.limit("", &c.Limits),
		"files":     p.files(c),
		"select":    p.policy("/select", &c.Select),
		"admit":     p.policy("/admit", &c.Admit),
		"max_body":  p.size("/max_body", "max_body <size>", &c.MaxBody),
		"timeout":   p.duration("/timeout", "timeout <duration>", &c.Timeout),
		"session":   func() error { return p.session(c) },
		"heartbeat": p.duration("/heartbeat", "heartbeat <duration>", &c.Heartbeat),
		"attempts":  p.positive("/attempts", "attempts <number>", &c.Attempts),
	})
}

// size parses an option that is a number of bytes, such as 32MiB.
func (p *parser) size(pointer, usage string, to *int64) option {
	return func() error {
		arg, err := p.one(pointer, usage)
		if err != nil {
			return err
		}
		size, err := humanize.ParseBytes(arg)
		if err != nil || size < 1 || size > 1<<62 {
			return p.Errf("%q is no size such as 32MiB; write: %s", arg, usage)
		}
		*to = int64(size)
		return nil
	}
}

// model parses a model and appends it to c's.
func (p *parser) model(c *Config) error {
	const usage = "model <public name> [<provider> [<upstream model>]]"
	at := element("/models", len(c.Models))
	args, err := p.begin(at, usage, 1, 3)
	if err != nil {
		return err
	}
	m := Model{Name: args[0]}
	if len(args) > 1 {
		m.Serve = append(m.Serve, serveOf(args[1:]))
	}
	err = p.block(options{
		"serve":    func() error { return p.serve(at, &m) },
		"context":  p.tokens(at+"/context_tokens", "context <tokens>", &m.ContextTokens),
		"price":    p.price(at, &m.Price),
		"fallback": p.words(at+"/fallback", "fallback <public models...>", &m.Fallback),
		"limit":    p.limit(at, &m.Limits),
	})
	c.Models = append(c.Models, m)
	return err
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

// session parses the limits of WebSockets.
func (p *parser) session(c *Config) error {
	const at = "/session"
	if _, err := p.begin(at, "session { ... }", 0, 0); err != nil {
		return err
	}
	return p.block(options{
		"idle":  p.duration(at+"/idle", "idle <duration>", &c.Session.Idle),
		"age":   p.duration(at+"/age", "age <duration>", &c.Session.Age),
		"model": p.text(at+"/model", "model <public name>", &c.Session.Model),
	})
}

// serve parses who serves a model and appends it to m's.
func (p *parser) serve(at string, m *Model) error {
	at = element(at+"/serve", len(m.Serve))
	args, err := p.begin(at, "serve <provider> [<upstream model>]", 1, 2)
	if err != nil {
		return err
	}
	s := serveOf(args)
	err = p.block(options{
		"context": p.tokens(at+"/context_tokens", "context <tokens>", &s.ContextTokens),
		"price":   p.price(at, &s.Price),
	})
	m.Serve = append(m.Serve, s)
	return err
}

// serveOf returns who serves a model from "provider [upstream model]".
func serveOf(args []string) Serve {
	s := Serve{Provider: args[0]}
	if len(args) > 1 {
		s.Model = args[1]
	}
	return s
}

// price parses the price of a model within the part that at names.
func (p *parser) price(at string, to **Price) option {
	return func() error {
		const usage = "price <input> <output>"
		args, err := p.begin(at+"/price", usage, 2, 2)
		if err != nil {
			return err
		}
		*to = new(Price)
		for i, part := range []*float64{&(*to).Input, &(*to).Output} {
			if *part, err = strconv.ParseFloat(args[i], 64); err != nil || math.IsNaN(*part) || math.IsInf(*part, 0) {
				return p.Errf("%q is no price of a million tokens, such as 2.50; write: %s", args[i], usage)
			}
		}
		return nil
	}
}

// tokens parses an option that is a number of tokens.
func (p *parser) tokens(pointer, usage string, to *int64) option {
	return func() error {
		arg, err := p.one(pointer, usage)
		if err != nil {
			return err
		}
		if *to, err = strconv.ParseInt(arg, 10, 64); err != nil {
			return p.notNumber(arg, usage)
		}
		return nil
	}
}

// caller parses a caller and appends it to c's.
func (p *parser) caller(c *Config) error {
	at := element("/callers", len(c.Callers))
	args, err := p.begin(at, "caller <id> { ... }", 1, 1)
	if err != nil {
		return err
	}
	caller := Caller{ID: args[0]}
	err = p.block(options{
		"key":        p.secret(at+"/key", "key {env.<variable>}|{file.<path>}", secretSyntax, &caller.Key),
		"key_sha256": p.secret(at+"/key_sha256", "key_sha256 <64 hexadecimal digits>", digestSyntax, &caller.KeySHA256),
		"group":      p.text(at+"/group", "group <name>", &caller.Group),
		"priority":   p.number(at+"/priority", "priority <number>", &caller.Priority),
		"limit":      p.limit(at, &caller.Limits),
	})
	c.Callers = append(c.Callers, caller)
	return err
}

// group parses a group and appends it to c's.
func (p *parser) group(c *Config) error {
	at := element("/groups", len(c.Groups))
	args, err := p.begin(at, "group <name>", 1, 1)
	if err != nil {
		return err
	}
	g := Group{Name: args[0]}
	err = p.block(options{"limit": p.limit(at, &g.Limits)})
	c.Groups = append(c.Groups, g)
	return err
}

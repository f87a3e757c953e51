package caddymodule

import (
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// appName is the name of the Caddy app, and of the global option and directive.
const appName = "usher"

// parseGlobalOption sets up the app from the global option. Syntax:
//
//	usher {
//		plugin <name> <path> [<args...>] {
//			env           <variable> <value>
//			start_timeout <duration>
//			checksum      sha256:<hex>
//			user          <name>
//			group         <name>
//			workdir       <directory>
//			auto_mtls
//			attach        <socket>
//			grant         headers <fields...>
//			grant         body
//		}
//		inline    <policies...>
//		telemetry on|off
//	}
//
// The options plugin and env may be repeated.
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	p := newParser(d)
	a := &AppConfig{Source: p.source}
	d.Next()
	if existing != nil {
		return nil, d.Err("the global option usher is set already; join the two")
	}
	if _, err := p.begin("", "usher { ... }", 0, 0); err != nil {
		return nil, err
	}
	err := p.block(options{
		"plugin":    func() error { return p.plugin(a) },
		"inline":    func() error { return p.inline(a) },
		"telemetry": func() error { return p.telemetry(a) },
	})
	if err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: appName, Value: caddyconfig.JSON(a, nil)}, nil
}

func (p *parser) inline(a *AppConfig) (err error) {
	a.Inline, err = p.begin("/inline", "inline keys|fifo...", 1, anyNumber)
	return err
}

func (p *parser) telemetry(a *AppConfig) error {
	const usage = "telemetry on|off"
	arg, err := p.one("/disable_telemetry", usage)
	if err != nil {
		return err
	}
	if arg != "on" && arg != "off" {
		return p.Errf("%q is neither on nor off; write: %s", arg, usage)
	}
	a.DisableTelemetry = arg == "off"
	return nil
}

// plugin parses a plugin and appends it to a's.
func (p *parser) plugin(a *AppConfig) error {
	at := element("/plugins", len(a.Plugins))
	args, err := p.begin(at, "plugin <name> <path> [<args...>] { ... }", 2, anyNumber)
	if err != nil {
		return err
	}
	pl := Plugin{Name: args[0], Path: args[1], Args: args[2:]}
	err = p.block(options{
		"env":           p.pair(at+"/env", "env <variable> <value>", &pl.Env),
		"start_timeout": p.duration(at+"/start_timeout", "start_timeout <duration>", &pl.StartTimeout),
		"checksum":      p.text(at+"/checksum", "checksum sha256:<hex>", &pl.Checksum),
		"user":          p.text(at+"/user", "user <name>", &pl.User),
		"group":         p.text(at+"/group", "group <name>", &pl.Group),
		"workdir":       p.text(at+"/workdir", "workdir <directory>", &pl.Workdir),
		"auto_mtls":     p.flag(at+"/auto_mtls", "auto_mtls", &pl.AutoMTLS),
		"attach":        p.text(at+"/attach", "attach <socket>", &pl.Attach),
		"grant":         func() error { return p.grant(at, &pl) },
	})
	a.Plugins = append(a.Plugins, pl)
	return err
}

// grant parses what the policies of pl may see.
func (p *parser) grant(at string, pl *Plugin) error {
	args, err := p.args("grant headers <fields...>, or grant body", 1, anyNumber)
	if err != nil {
		return err
	}
	switch {
	case args[0] == "body" && len(args) == 1:
		pl.GrantBody = true
		return p.mark(at + "/grant_body")
	case args[0] == "headers" && len(args) > 1:
		pl.GrantHeaders = args[1:]
		return p.mark(at + "/grant_headers")
	}
	return p.Errf("only headers and the body can be granted; write: grant headers <fields...>, or grant body")
}

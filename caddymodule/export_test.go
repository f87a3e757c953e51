package caddymodule

import (
	"encoding/json"

	"github.com/caddyserver/caddy/v2"

	"github.com/usherproxy/usher/policy"
)

// What tests of the configuration reach besides the exported parts.
var (
	ParseGlobalOption = parseGlobalOption
	ResolveSecret     = resolveSecret
)

type (
	Directory = directory
	Identity  = identity
)

func (c *Config) Check(plugins ...string) error { return c.check(plugins) }
func (c *Config) SetDefaults()                  { c.setDefaults() }

func (a *AppConfig) Check() error       { return a.check() }
func (a *AppConfig) SetDefaults()       { a.setDefaults() }
func (a *AppConfig) Policies() []string { return a.policies() }

func (c *Config) Candidates() []policy.Candidate { return c.catalog().all }

func (c *Config) CandidatesOf(model string) ([]policy.Candidate, bool) {
	return c.catalog().of(model)
}

func (c *Config) Directory(repl *caddy.Replacer) (*Directory, error) { return c.directory(repl) }

func (d *Directory) Identify(key string, repl *caddy.Replacer) (Identity, bool) {
	return d.identify(key, repl)
}

func (c *Config) Secrets(repl *caddy.Replacer) (map[string]string, error) { return c.secrets(repl) }

func (u *PolicyUse) Options(repl *caddy.Replacer) (json.RawMessage, error) { return u.options(repl) }

func (p *Plugin) Environ(repl *caddy.Replacer) ([]string, error) { return p.environ(repl) }

func (m SourceMap) At(pointer string) string { return m.at(pointer) }

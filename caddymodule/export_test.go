package caddymodule

import (
	"encoding/json"
	"io"
	"maps"
	"testing"
	"time"

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

// What tests of the pipeline reach.

type Decision = decision

// Explain prints a decision for people.
func Explain(out io.Writer, d *Decision) { explain(out, d) }

// InUse reports whether anything is held for a configuration.
func InUse() bool {
	used := false
	for _, pool := range []*caddy.UsagePool{pluginPool, sharedPool, tracingPool} {
		pool.Range(func(any, any) bool {
			used = true
			return false
		})
	}
	return used
}

// Counted returns what runs, by key and by scope.
func Counted() map[string]int64 {
	counts := make(map[string]int64)
	if s := currentShared(); s != nil {
		s.facts.mu.Lock()
		defer s.facts.mu.Unlock()
		for key, n := range s.facts.keys {
			counts["in flight: "+key] = int64(n)
		}
		maps.Copy(counts, s.facts.scopes)
	}
	return counts
}

// HoldBeginnings bounds for one test how long the beginning of an answer is
// held back.
func HoldBeginnings(t *testing.T, most time.Duration) {
	before := beginnings
	beginnings.MaxWait = most
	t.Cleanup(func() { beginnings = before })
}

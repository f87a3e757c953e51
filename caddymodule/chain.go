package caddymodule

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/usherproxy/usher/internal/pluginhost"
)

// A use is one use of a policy on a site.
type use struct {
	name    string // of the policy
	timeout time.Duration
	open    bool // go on without the policy if it cannot be asked
	grants  *Plugin
	plugin  *pluginhost.Plugin
	config  json.RawMessage
	place   string            // "file:line" in the Caddyfile, or ""
	locate  func(error) error // puts the place before an error

	instance *pluginhost.Instance // set by start

	complained atomic.Int64 // when its failure was last logged, in Unix seconds
}

// complains reports whether a failure of the policy is to be logged: one a
// second. The others are in the records of their requests.
func (u *use) complains(now time.Time) bool {
	last := u.complained.Load()
	return last != now.Unix() && u.complained.CompareAndSwap(last, now.Unix())
}

// A chain is the policies of a site in the order in which they are asked.
type chain struct {
	selects, admits []*use
}

// A step is one round trip: selection policies of one process that follow each
// other, and the admission policy that follows them if it is there, too.
type step struct {
	selects []*use
	admit   *use
}

// plugin is the plugin that all uses of the step share.
func (s step) plugin() *pluginhost.Plugin {
	if s.admit != nil {
		return s.admit.plugin
	}
	return s.selects[0].plugin
}

// timeout is the time that all uses of the step may take together.
func (s step) timeout() time.Duration {
	var sum time.Duration
	for _, u := range s.selects {
		sum += u.timeout
	}
	if s.admit != nil {
		sum += s.admit.timeout
	}
	return sum
}

// open reports whether a request can go on without any of the uses.
func (s step) open() bool {
	for _, u := range s.selects {
		if !u.open {
			return false
		}
	}
	return s.admit == nil || s.admit.open
}

// steps returns the round trips that asking selects, and then admit if it is
// not nil, takes.
func steps(selects []*use, admit *use) []step {
	var steps []step
	for _, u := range selects {
		if n := len(steps); n > 0 && steps[n-1].plugin() == u.plugin {
			steps[n-1].selects = append(steps[n-1].selects, u)
			continue
		}
		steps = append(steps, step{selects: []*use{u}})
	}
	if admit == nil {
		return steps
	}
	if n := len(steps); n > 0 && steps[n-1].plugin() == admit.plugin {
		steps[n-1].admit = admit
		return steps
	}
	return append(steps, step{admit: admit})
}

// chain returns the policies of c, whose plugins have checked their options.
func (c *Config) chain(ctx context.Context, app *App) (*chain, error) {
	repl := caddy.NewReplacer()
	p := &problems{source: c.Source}
	build := func(field string, uses []PolicyUse) []*use {
		var built []*use
		for i := range uses {
			if uses[i].Policy == policyNone {
				continue
			}
			r := p.root().item(field, i, named(field, uses[i].Policy))
			if u := uses[i].build(ctx, app, repl, r); u != nil {
				built = append(built, u)
			}
		}
		return built
	}
	ch := &chain{selects: build("select", c.Select), admits: build("admit", c.Admit)}
	return ch, p.err()
}

// build returns the use, or nil if something is wrong with it.
func (u *PolicyUse) build(ctx context.Context, app *App, repl *caddy.Replacer, r reporter) *use {
	config, err := u.options(repl)
	if err != nil {
		r.in("config", "options").errorf("%w", err)
		return nil
	}
	plugin, err := app.plugin(ctx, u.Policy)
	if err != nil {
		r.errorf("%w", err)
		return nil
	}
	policyName, err := policyOf(ctx, plugin, u.Policy)
	if err != nil {
		r.errorf("%w", err)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(defaultStartTimeout))
	defer cancel()
	diagnostics, err := plugin.Validate(ctx, policyName, config)
	if err != nil {
		r.errorf("%w", err)
		return nil
	}
	for _, d := range diagnostics {
		if d.Option == "" {
			r.errorf("%s", d.Message)
			continue
		}
		r.in("config/"+pointerEscaper.Replace(d.Option), d.Option).errorf("%s", d.Message)
	}
	return &use{
		name: u.Policy, timeout: time.Duration(u.Timeout), open: u.OnError == onErrorOpen,
		grants: app.grants(u.Policy), plugin: plugin, config: config,
		place:  r.problems.source.at(r.pointer),
		locate: func(err error) error { return r.problems.source.locate(r.pointer, err) },
	}
}

// policyOf returns what a plugin itself calls the policy that a site uses
// under the given name: the name of the plugin's declaration stands for its
// only policy.
func policyOf(ctx context.Context, plugin *pluginhost.Plugin, name string) (string, error) {
	if slices.Contains(builtIn, name) {
		return name, nil
	}
	policies, err := plugin.Policies(ctx)
	if err != nil {
		return "", err
	}
	if len(policies) != 1 {
		return "", fmt.Errorf("plugin %s serves %d policies; it must serve one", plugin.Name(), len(policies))
	}
	return policies[0], nil
}

// start configures the policies. What it made is given back at the end.
func (ch *chain) start(ctx context.Context, atEnd func(func(context.Context))) error {
	for _, u := range ch.selects {
		if err := u.start(ctx, atEnd); err != nil {
			return err
		}
		if !u.instance.Kinds().Selection {
			return u.locate(fmt.Errorf("select %s: the policy does not select; write: admit %s", u.name, u.name))
		}
	}
	for _, u := range ch.admits {
		if err := u.start(ctx, atEnd); err != nil {
			return err
		}
		if !u.instance.Kinds().Admission {
			return u.locate(fmt.Errorf("admit %s: the policy does not admit; write: select %s", u.name, u.name))
		}
	}
	return nil
}

func (u *use) start(ctx context.Context, atEnd func(func(context.Context))) error {
	policyName, err := policyOf(ctx, u.plugin, u.name)
	if err != nil {
		return err
	}
	u.instance, err = u.plugin.Configure(ctx, policyName, u.config)
	if err != nil {
		return u.locate(fmt.Errorf("configure policy %s: %w", u.name, err))
	}
	atEnd(func(ctx context.Context) {
		_ = u.instance.Close(ctx) // a process that does not take it is ended soon
	})
	return nil
}

// all returns the uses of the chain in order.
func (ch *chain) all() []*use {
	return append(append([]*use{}, ch.selects...), ch.admits...)
}

// plugins returns the distinct plugins of the chain.
func (ch *chain) plugins() []*pluginhost.Plugin {
	var plugins []*pluginhost.Plugin
	seen := make(map[*pluginhost.Plugin]bool)
	for _, u := range ch.all() {
		if !seen[u.plugin] {
			seen[u.plugin] = true
			plugins = append(plugins, u.plugin)
		}
	}
	return plugins
}

// returns reports whether an admission policy does not answer but is expected
// to, soon.
func (ch *chain) returns() bool {
	return slices.ContainsFunc(ch.admits, func(u *use) bool { return u.plugin.Returns() })
}

// observers returns for each plugin the instances that want to hear how
// attempts end.
func (ch *chain) observers() map[*pluginhost.Plugin][]string {
	observers := make(map[*pluginhost.Plugin][]string)
	seen := make(map[string]bool)
	for _, u := range ch.all() {
		key := u.plugin.Name() + "/" + u.instance.Name()
		if u.instance.Kinds().Observer && !seen[key] {
			seen[key] = true
			observers[u.plugin] = append(observers[u.plugin], u.instance.Name())
		}
	}
	return observers
}

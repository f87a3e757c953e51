package pluginhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/usherproxy/usher/sdk/host"
)

// An Instance is one configured policy of a plugin. Its owner calls Close.
type Instance struct {
	plugin *Plugin
	name   string
	kinds  host.Kinds
}

// Configure returns the instance of a policy for a configuration. Equal
// configurations share an instance. It returns a [*host.ConfigError] if the
// plugin refuses the configuration.
func (p *Plugin) Configure(ctx context.Context, policy string, config json.RawMessage) (*Instance, error) {
	sum := sha256.Sum256(config)
	name := policy + "-" + hex.EncodeToString(sum[:8])
	p.mu.Lock()
	in, ok := p.instances[name]
	if !ok {
		in = &instance{policy: policy, config: config}
		p.instances[name] = in // from here on a restart configures it, too
	}
	in.users++
	p.mu.Unlock()
	err := p.call(ctx, func(process *process) error {
		kinds, err := process.Configure(ctx, name, policy, config)
		if err == nil {
			p.mu.Lock()
			in.kinds = kinds
			p.mu.Unlock()
		}
		return err
	})
	if err != nil {
		p.leave(name)
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &Instance{plugin: p, name: name, kinds: in.kinds}, nil
}

// Kinds are the decisions that the instance takes part in.
func (in *Instance) Kinds() host.Kinds { return in.kinds }

// Name is the name of the instance in calls of its plugin.
func (in *Instance) Name() string { return in.name }

// Plugin is the plugin of the instance.
func (in *Instance) Plugin() *Plugin { return in.plugin }

// Close gives the instance up. When nobody uses it any more, the plugin ends
// it. All its leases must have been released before.
func (in *Instance) Close(ctx context.Context) error {
	if !in.plugin.leave(in.name) {
		return nil
	}
	in.plugin.journal.drained(ctx)
	process, err := in.plugin.current(ctx)
	if err != nil {
		return err
	}
	if err := process.Drain(ctx, in.name); err != nil && !host.Unavailable(err) {
		return fmt.Errorf("drain %s: %w", in.name, err)
	}
	return nil
}

// leave counts one user of an instance less, and reports whether it was the
// last one.
func (p *Plugin) leave(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.instances[name]
	in.users--
	if in.users > 0 {
		return false
	}
	delete(p.instances, name)
	return true
}

// AddCatalog sends a catalog, so that decisions can refer to it. Each call is
// undone by one of RemoveCatalog.
func (p *Plugin) AddCatalog(ctx context.Context, c *host.Catalog) error {
	p.mu.Lock()
	use, ok := p.catalogs[c.Name]
	if !ok {
		use = &catalogUse{Catalog: c}
		p.catalogs[c.Name] = use
	}
	use.users++
	p.mu.Unlock()
	err := p.call(ctx, func(process *process) error { return process.SyncCatalog(ctx, c) })
	if err != nil {
		p.dropCatalog(c)
		return fmt.Errorf("send catalog: %w", err)
	}
	return nil
}

// RemoveCatalog lets the plugin forget a catalog that no request uses.
func (p *Plugin) RemoveCatalog(ctx context.Context, c *host.Catalog) error {
	if !p.dropCatalog(c) {
		return nil
	}
	process, err := p.current(ctx)
	if err != nil {
		return err
	}
	return process.SyncCatalog(ctx, nil, c.Name)
}

func (p *Plugin) dropCatalog(c *host.Catalog) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	use := p.catalogs[c.Name]
	use.users--
	if use.users > 0 {
		return false
	}
	delete(p.catalogs, c.Name)
	return true
}

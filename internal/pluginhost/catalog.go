package pluginhost

import (
	"context"
	"fmt"

	"github.com/usherproxy/usher/sdk/host"
)

// AddCatalog sends a catalog, so that decisions can refer to it. Each call is
// undone by one of RemoveCatalog.
func (p *Plugin) AddCatalog(ctx context.Context, c *host.Catalog) error {
	if err := p.beginConfiguring(ctx); err != nil {
		return err
	}
	defer p.endConfiguring()
	if p.joinCatalog(c) {
		return nil
	}
	err := p.call(ctx, func(process *process) error {
		err := process.SyncCatalog(ctx, c)
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.catalogs[c.Name] = &catalogUse{Catalog: c, users: 1}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("send catalog: %w", err)
	}
	return nil
}

// joinCatalog counts one user of a catalog more, if it was sent already.
func (p *Plugin) joinCatalog(c *host.Catalog) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	use, ok := p.catalogs[c.Name]
	if ok {
		use.users++
	}
	return ok
}

// RemoveCatalog lets the plugin forget a catalog that no request uses. If it
// cannot be told within the time of ctx, it keeps the catalog until its process
// ends.
func (p *Plugin) RemoveCatalog(ctx context.Context, c *host.Catalog) error {
	if !p.leaveCatalog(c) {
		return nil
	}
	if err := p.beginConfiguring(ctx); err != nil {
		return err
	}
	defer p.endConfiguring()
	p.journal.flushed(ctx) // it may hold observations that refer to the catalog
	return p.call(ctx, func(process *process) error {
		if p.hasCatalog(c) {
			return nil // it was added again meanwhile
		}
		return process.SyncCatalog(ctx, nil, c.Name)
	})
}

func (p *Plugin) hasCatalog(c *host.Catalog) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.catalogs[c.Name]
	return ok
}

// leaveCatalog counts one user of a catalog less, and reports whether it was
// the last one.
func (p *Plugin) leaveCatalog(c *host.Catalog) bool {
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

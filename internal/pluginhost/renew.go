package pluginhost

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/sdk/host"
)

// A fingerprint tells whether an executable is still the one that was started.
// The zero value is that of a file that cannot be looked at.
type fingerprint struct {
	device, inode uint64
	size          int64
	changed       time.Time
}

func fingerprintOf(path string) fingerprint {
	info, err := os.Stat(path)
	if err != nil {
		return fingerprint{}
	}
	return newFingerprint(info)
}

func newFingerprint(info fs.FileInfo) fingerprint {
	device, inode := fileID(info)
	return fingerprint{device, inode, info.Size(), info.ModTime()}
}

// A renewal is a new process that is to take over.
type renewal struct {
	next *process
	done chan error // receives once
}

// renewTimeout is how long a new process may wait until it takes over.
const renewTimeout = 30 * time.Second

// Renew lets a process of a rebuilt executable take over, if the file is not
// the one that was started any more, or has another pinned checksum. spec must
// have the key of the plugin's own. The new process is started, and takes the
// configurations of the old one, before this is taken out of service; then it
// is told what runs and what waits. Requests notice a delay at most.
//
// If Renew returns an error, the old process goes on.
func (p *Plugin) Renew(ctx context.Context, spec Spec) error {
	ctx, cancel := context.WithTimeout(ctx, spec.StartTimeout+renewTimeout)
	defer cancel()
	if err := p.beginConfiguring(ctx); err != nil {
		return err
	}
	defer p.endConfiguring()
	if !p.isOutdated(spec) {
		return nil
	}
	next, err := startProcess(ctx, spec, p.log)
	if err != nil {
		return err
	}
	kinds, err := p.tryOut(ctx, next)
	if err != nil {
		next.end(0)
		return fmt.Errorf("the executable of plugin %s has changed, and the new one cannot take over: %w", spec.Name, err)
	}
	r := renewal{next, make(chan error, 1)}
	select {
	case p.renewals <- r:
		if err := <-r.done; err != nil {
			return err
		}
		p.setKinds(kinds)
		return nil
	case <-ctx.Done():
		err = fmt.Errorf("renew plugin %s: %w", spec.Name, ctx.Err())
	case <-p.ctx.Done():
		err = errStopped
	}
	next.end(0)
	return err
}

// isOutdated reports whether the process that serves is not of the file that
// spec names.
func (p *Plugin) isOutdated(spec Spec) bool {
	p.mu.Lock()
	serving := p.process
	p.mu.Unlock()
	switch {
	case serving == nil:
		return true // the next process may be started from the old checksum
	case serving.inline():
		return false
	}
	return serving.fingerprint != fingerprintOf(spec.Path) || serving.spec.Checksum != spec.Checksum
}

// tryOut checks that a new process takes the present configurations, and
// returns the kinds of the instances by name. It does not hold any ticket yet.
func (p *Plugin) tryOut(ctx context.Context, next *process) (map[string]host.Kinds, error) {
	all := make(map[string]host.Kinds)
	for _, in := range p.estate().instances {
		kinds, err := next.Configure(ctx, in.name, in.policy, in.config)
		if err != nil {
			return nil, err
		}
		if in.kinds.Selection && !kinds.Selection || in.kinds.Admission && !kinds.Admission {
			return nil, fmt.Errorf("policy %s does not decide any more what it decided", in.policy)
		}
		all[in.name] = kinds
	}
	return all, nil
}

// setKinds notes what the instances of a new process take part in.
func (p *Plugin) setKinds(kinds map[string]host.Kinds) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range p.instances {
		if k, ok := kinds[in.name]; ok {
			in.kinds = k
		}
	}
}

// takeOver lets the process of r take the place of one that serves, and returns
// the process that serves from then on: nil if there is none.
func (p *Plugin) takeOver(ctx context.Context, r renewal, current *process) *process {
	began := time.Now()
	p.lose(current)
	p.bury(current, false)
	p.adopt(r.next)
	if err := p.setUp(ctx, r.next); err != nil {
		r.next.end(0)
		r.done <- err
		return nil
	}
	p.log.Info("plugin renewed", zap.Int("pid", r.next.pid()), zap.String("version", r.next.info.Version), zap.Duration("outage", time.Since(began)))
	p.serve(r.next)
	r.done <- nil
	return r.next
}

// adopt makes the spec of a process that of all that come after it.
func (p *Plugin) adopt(next *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spec.Checksum = next.spec.Checksum
}

// presentSpec returns what the next process is to be started of.
func (p *Plugin) presentSpec() Spec {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spec
}

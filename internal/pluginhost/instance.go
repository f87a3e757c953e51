package pluginhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// An Instance is one configured policy of a plugin. Its owner calls Close.
type Instance struct {
	plugin *Plugin
	key    string
	name   string
	kinds  host.Kinds
}

// Configure returns the instance of a policy for a configuration. Equal
// configurations share an instance. It returns a [*host.ConfigError] if the
// plugin refuses the configuration.
func (p *Plugin) Configure(ctx context.Context, policy string, config json.RawMessage) (*Instance, error) {
	if err := p.beginConfiguring(ctx); err != nil {
		return nil, err
	}
	defer p.endConfiguring()
	sum := sha256.Sum256(config)
	key := policy + "-" + hex.EncodeToString(sum[:])
	in := p.joinInstance(key)
	if in == nil {
		var err error
		if in, err = p.addInstance(ctx, key, policy, config); err != nil {
			return nil, err
		}
	}
	return &Instance{plugin: p, key: key, name: in.name, kinds: in.kinds}, nil
}

// joinInstance returns an instance with one more user, or nil.
func (p *Plugin) joinInstance(key string) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	in, ok := p.instances[key]
	if ok {
		in.users++
	}
	return in
}

// addInstance configures an instance. Each has a new name, so that the end of
// one is never that of another with the same configuration.
func (p *Plugin) addInstance(ctx context.Context, key, policy string, config json.RawMessage) (*instance, error) {
	p.mu.Lock()
	p.named++
	in := &instance{name: fmt.Sprintf("%s-%d", policy, p.named), policy: policy, config: config, users: 1}
	p.mu.Unlock()
	asked := false
	err := p.call(ctx, p.unlessDeadly("configure", func(process *process) (err error) {
		asked = true
		if in.kinds, err = process.Configure(ctx, in.name, policy, config); err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.instances[key] = in // from here on a restart configures it, too
		}
		return err
	}))
	if err == nil {
		return in, nil
	}
	if _, refused := errors.AsType[*host.ConfigError](err); asked && !refused {
		p.wg.Go(func() { p.drain(in.name) }) // it may come into being yet
	}
	return nil, err
}

// Kinds are the decisions that the instance takes part in.
func (in *Instance) Kinds() host.Kinds { return in.kinds }

// Operate carries out a command of an operator. It returns a
// [*host.CommandError] if it is the command that is wrong. While the process is
// being restarted it waits, as long as ctx allows.
func (in *Instance) Operate(ctx context.Context, cmd policy.Command) (json.RawMessage, error) {
	var out json.RawMessage
	err := in.plugin.call(ctx, in.plugin.unlessDeadly("do", func(process *process) (err error) {
		out, err = process.Operate(ctx, in.name, cmd)
		return err
	}))
	return out, err
}

// Name is the name of the instance in calls of its plugin.
func (in *Instance) Name() string { return in.name }

// Close gives the instance up, once. When nobody uses it any more, the plugin
// ends it; Close waits for that as long as ctx allows. All its leases must have
// been released before.
func (in *Instance) Close(ctx context.Context) error {
	p := in.plugin
	if !p.leaveInstance(in.key) {
		return nil
	}
	drained := make(chan struct{})
	p.wg.Go(func() {
		defer close(drained)
		p.drain(in.name)
	})
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain %s: %w", in.name, ctx.Err())
	}
}

// leaveInstance counts one user of an instance less, and reports whether it
// was the last one.
func (p *Plugin) leaveInstance(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.instances[key]
	in.users--
	if in.users > 0 {
		return false
	}
	delete(p.instances, key)
	return true
}

// drainTimeout is how long it may take to end an instance.
const drainTimeout = time.Minute

// drain ends an instance after its last releases.
func (p *Plugin) drain(name string) {
	ctx, cancel := context.WithTimeout(p.ctx, drainTimeout)
	defer cancel()
	p.journal.flushed(ctx)
	err := p.call(ctx, func(process *process) error { return process.Drain(ctx, name) })
	if err != nil && p.ctx.Err() == nil {
		p.log.Error("drain", zap.String("instance", name), zap.Error(err))
	}
}

// beginConfiguring waits for its turn to add or to remove instances or
// catalogs.
func (p *Plugin) beginConfiguring(ctx context.Context) error {
	select {
	case p.configuring <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the plugin %s is being configured: %w", p.spec.Name, ctx.Err())
	}
}

func (p *Plugin) endConfiguring() { <-p.configuring }

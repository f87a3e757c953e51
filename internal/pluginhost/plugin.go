package pluginhost

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
)

const (
	// probeEvery is how often a process is asked whether it lives, and
	// probeTimeout how long it may take to answer. A process that misses two
	// probes in a row is killed.
	probeEvery   = 5 * time.Second
	probeTimeout = 3 * time.Second

	// A process that dies is started again after backoffMin, and after twice
	// as long each time it dies young, up to backoffMax. One that lived for
	// healthyAfter counts as well again.
	backoffMin   = 10 * time.Millisecond
	backoffMax   = 10 * time.Second
	healthyAfter = 10 * time.Second

	// setUpTimeout is how long a new process may take to take over the
	// instances, the catalogs and the tickets of the one before it.
	setUpTimeout = 30 * time.Second
)

// A Plugin is an executable under supervision. It is safe for concurrent use.
// Its owner calls Close.
type Plugin struct {
	spec Spec
	log  *zap.Logger

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // the goroutines of the plugin

	ledger  *ledger
	journal *journal

	mu        sync.Mutex // guards what follows
	process   *process   // nil while none serves
	ready     chan struct{}
	instances map[string]*instance // by name
	catalogs  map[string]*catalogUse
	restarts  int
}

// instance is a configured policy and the number of its users.
type instance struct {
	policy string
	config json.RawMessage
	kinds  host.Kinds
	users  int
}

// catalogUse is a catalog and the number of its users.
type catalogUse struct {
	*host.Catalog
	users int
}

// Start starts a plugin and returns when it serves. Its log goes to log.
func Start(ctx context.Context, spec Spec, log *zap.Logger) (*Plugin, error) {
	first, err := startProcess(ctx, spec, log)
	if err != nil {
		return nil, err
	}
	p := &Plugin{
		spec: spec, log: log, process: first, ready: make(chan struct{}),
		ledger: newLedger(), journal: newJournal(),
		instances: make(map[string]*instance), catalogs: make(map[string]*catalogUse),
	}
	close(p.ready)
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.wg.Go(func() { p.supervise(first) })
	p.wg.Go(p.keepJournal)
	log.Info("plugin started", zap.Int("pid", first.pid()), zap.String("version", first.info.Version))
	return p, nil
}

// Close stops the process and waits for it. What is still in the journal is
// sent first, as far as the process takes it within the time of ctx.
func (p *Plugin) Close(ctx context.Context) {
	p.journal.drained(ctx)
	p.stop()
	p.wg.Wait()
}

// supervise watches the processes of the plugin, one after the other.
func (p *Plugin) supervise(current *process) {
	backoff := backoffMin
	for {
		born := time.Now()
		p.watch(current)
		died := time.Now()
		ready := p.lost(current)
		current.kill()
		if p.ctx.Err() != nil {
			p.log.Info("plugin stopped", zap.Int("pid", current.pid()))
			return
		}
		if died.Sub(born) > healthyAfter {
			backoff = backoffMin
		}
		p.log.Error("plugin died", zap.Int("pid", current.pid()), zap.String("how", exitWord(current.runner.err)))
		next := p.restart(&backoff)
		if next == nil {
			return // Close
		}
		p.log.Warn("plugin restarted", zap.Int("pid", next.pid()), zap.Duration("outage", time.Since(died)))
		p.mu.Lock()
		p.process = next
		p.restarts++
		p.mu.Unlock()
		close(ready)
		current = next
	}
}

// watch returns when the process has ended, hangs, or is not wanted any more.
func (p *Plugin) watch(current *process) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	missed := 0
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-current.exited():
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(p.ctx, probeTimeout)
		_, err := current.Info(ctx, p.spec.HostVersion)
		cancel()
		if err == nil {
			missed = 0
			continue
		}
		if missed++; missed == 2 {
			p.log.Error("plugin hangs", zap.Int("pid", current.pid()), zap.Error(err))
			return
		}
	}
}

// restart returns a new process that has taken over, or nil after Close.
func (p *Plugin) restart(backoff *time.Duration) *process {
	for {
		pause := *backoff/2 + rand.N(*backoff)
		*backoff = min(*backoff*2, backoffMax)
		select {
		case <-p.ctx.Done():
			return nil
		case <-time.After(pause):
		}
		next, err := startProcess(p.ctx, p.spec, p.log)
		if err == nil {
			if err = p.setUp(next); err == nil {
				return next
			}
			next.kill()
		}
		p.log.Error("restart plugin", zap.Error(err), zap.Duration("next_try_in", *backoff))
	}
}

// setUp gives a new process the instances, catalogs and tickets of the one
// before it. Nobody else talks to it yet.
func (p *Plugin) setUp(next *process) error {
	ctx, cancel := context.WithTimeout(p.ctx, setUpTimeout)
	defer cancel()
	p.mu.Lock()
	instances, catalogs := maps.Clone(p.instances), maps.Clone(p.catalogs)
	p.mu.Unlock()
	for name, in := range instances {
		if _, err := next.Configure(ctx, name, in.policy, in.config); err != nil {
			return fmt.Errorf("configure again: %w", err)
		}
	}
	for _, c := range catalogs {
		if err := next.SyncCatalog(ctx, c.Catalog); err != nil {
			return fmt.Errorf("send catalog again: %w", err)
		}
	}
	for name, in := range instances {
		if !in.kinds.Restorer {
			continue
		}
		running, waiting := p.ledger.held(name)
		if err := next.Restore(ctx, name, running, waiting); err != nil {
			return fmt.Errorf("restore %d running and %d waiting requests: %w", len(running), len(waiting), err)
		}
	}
	return nil
}

// current returns the process that serves, and waits for it while it is being
// restarted.
func (p *Plugin) current(ctx context.Context) (*process, error) {
	for {
		p.mu.Lock()
		process, ready := p.process, p.ready
		p.mu.Unlock()
		if process != nil {
			return process, nil
		}
		select {
		case <-ready:
		case <-p.ctx.Done():
			return nil, errStopped
		case <-ctx.Done():
			return nil, fmt.Errorf("the plugin %s is being restarted: %w", p.spec.Name, ctx.Err())
		}
	}
}

// call makes a call that may be repeated, on as many processes as it takes.
func (p *Plugin) call(ctx context.Context, f func(*process) error) error {
	for {
		process, err := p.current(ctx)
		if err != nil {
			return err
		}
		err = f(process)
		if err == nil || !host.Unavailable(err) || ctx.Err() != nil {
			return err
		}
		if err := p.passed(ctx, process); err != nil {
			return err
		}
	}
}

// passed waits until a process that did not answer is known to be dead, and
// kills it if it is not: its connection is broken, and no other is made.
func (p *Plugin) passed(ctx context.Context, dead *process) error {
	select {
	case <-dead.exited():
	case <-time.After(time.Second):
		_ = dead.runner.Kill(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
	p.lost(dead)
	return nil
}

// lost takes a dead process out of service. It returns the channel that is
// closed when another one serves.
func (p *Plugin) lost(dead *process) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == dead {
		p.process, p.ready = nil, make(chan struct{})
	}
	return p.ready
}

// Policies are the names of the plugin's policies.
func (p *Plugin) Policies(ctx context.Context) ([]string, error) {
	process, err := p.current(ctx)
	if err != nil {
		return nil, err
	}
	return process.info.Policies, nil
}

// Validate checks the configuration of a policy without any side effect.
func (p *Plugin) Validate(ctx context.Context, policy string, config json.RawMessage) (ds []sdk.Diagnostic, err error) {
	err = p.call(ctx, func(process *process) error {
		if !slices.Contains(process.info.Policies, policy) {
			return fmt.Errorf("plugin %s has no policy %q; it has %q", p.spec.Name, policy, process.info.Policies)
		}
		ds, err = process.ValidateConfig(ctx, policy, config)
		return err
	})
	return ds, err
}

// PID returns the ID of the process that serves, or 0 if none does.
func (p *Plugin) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return 0
	}
	return p.process.pid()
}

// Name returns the plugin's name in the configuration.
func (p *Plugin) Name() string { return p.spec.Name }

// Restarts returns how often the process has been started again.
func (p *Plugin) Restarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restarts
}

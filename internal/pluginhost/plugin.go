package pluginhost

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
)

// A Plugin is an executable under supervision. It is safe for concurrent use.
// Its owner calls Close.
type Plugin struct {
	spec   Spec
	timing timing
	log    *zap.Logger

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // the goroutines of the plugin

	ledger  *ledger
	journal *journal

	// configuring is held, by sending to it, while instances and catalogs are
	// added or removed, so that a plugin gets to see one change after the other.
	configuring chan struct{}

	mu        sync.Mutex           // guards what follows
	process   *process             // nil while none serves
	outage    *outage              // nil while one serves
	instances map[string]*instance // by policy and configuration
	named     int                  // instances that were given a name
	catalogs  map[string]*catalogUse
	restarts  int
	missed    bool // the last probe

	renewals   chan renewal  // to who supervises
	suspicions chan struct{} // the same; has room for one
}

// instance is a configured policy and the number of its users.
type instance struct {
	name   string
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
	return start(ctx, spec, log, defaultTiming)
}

func start(ctx context.Context, spec Spec, log *zap.Logger, timing timing) (*Plugin, error) {
	first, err := startProcess(ctx, spec, log)
	if err != nil {
		return nil, err
	}
	p := newPlugin(spec, log, timing, first)
	log.Info("plugin started", zap.Int("pid", first.pid()), zap.String("version", first.info.Version))
	p.wg.Go(func() { p.supervise(p.ctx, first) })
	p.wg.Go(func() { p.keepJournal(p.ctx) })
	return p, nil
}

func newPlugin(spec Spec, log *zap.Logger, timing timing, first *process) *Plugin {
	p := &Plugin{
		spec: spec, timing: timing, log: log, ledger: newLedger(), journal: newJournal(), configuring: make(chan struct{}, 1),
		renewals: make(chan renewal), suspicions: make(chan struct{}, 1),
		process: first, instances: make(map[string]*instance), catalogs: make(map[string]*catalogUse),
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Close stops the process and waits for it. What is still in the journal is
// sent first, as far as the process takes it within the time of ctx.
func (p *Plugin) Close(ctx context.Context) {
	p.journal.flushed(ctx)
	p.stop()
	p.wg.Wait()
}

// Policies are the names of the plugin's policies.
func (p *Plugin) Policies(ctx context.Context) (names []string, err error) {
	err = p.call(ctx, func(process *process) error {
		names = process.info.Policies
		return nil
	})
	return names, err
}

// Validate checks the configuration of a policy without any side effect.
func (p *Plugin) Validate(ctx context.Context, policy string, config json.RawMessage) (ds []sdk.Diagnostic, err error) {
	err = p.call(ctx, p.unlessDeadly("validate", func(process *process) error {
		if !slices.Contains(process.info.Policies, policy) {
			return fmt.Errorf("plugin %s has no policy %q; it has %q", p.spec.Name, policy, process.info.Policies)
		}
		ds, err = process.ValidateConfig(ctx, policy, config)
		return err
	}))
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

func (p *Plugin) countRestart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restarts++
}

// Held returns how many requests run under leases of the plugin and how many
// wait for one, as the host counts them.
func (p *Plugin) Held() (running, waiting int) { return p.ledger.counts() }

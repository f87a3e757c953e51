package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/usherproxy/usher/internal/pluginhost"
)

func init() {
	caddy.RegisterModule(new(App))
}

// App is what all sites share: the plugins, and where traces go.
//
// The policies `keys` and `fifo` are built in. They run as a process, too: the
// executable starts itself again; unless they are to be inline.
type App struct {
	AppConfig

	log     *zap.Logger
	shared  *shared
	plugins map[string]*pluginhost.Plugin // by the name of the policy
	uses    lifetime
	starts  []func(context.Context) error // of the sites, for Start
	ends    []func(context.Context)       // undone in reverse when the last request has ended
	started bool
	inUse   []*use // of the sites, once they are configured
	tracing *tracing

	stopping context.Context // is done when the process has no more time for requests
	stop     context.CancelFunc
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: appName, New: func() caddy.Module { return new(App) }}
}

// Provision starts the plugins that are declared. Those that a site uses are
// configured by Start, so that validating a configuration changes nothing.
func (a *App) Provision(ctx caddy.Context) error {
	a.log = ctx.Logger()
	a.stopping, a.stop = context.WithCancel(context.Background())
	a.setDefaults()
	if err := a.check(); err != nil {
		return err
	}
	a.plugins = make(map[string]*pluginhost.Plugin)
	a.shared = acquireShared(a.atEnd)
	if !a.DisableTelemetry {
		var err error
		if a.tracing, err = acquireTracing(ctx, a.log, a.atEnd); err != nil {
			return err
		}
	}
	repl := caddy.NewReplacer()
	var errs []error
	for i := range a.Plugins {
		pl := &a.Plugins[i]
		env, err := pl.environ(repl)
		if err == nil {
			a.plugins[pl.Name], err = a.acquireRenewed(ctx, pl.spec(env))
		}
		if err != nil {
			errs = append(errs, a.Source.locate(fmt.Sprintf("/plugins/%d", i), err))
		}
	}
	return errors.Join(errs...)
}

// atEnd registers what is to be done when the app is not used any more.
func (a *App) atEnd(f func(context.Context)) { a.ends = append(a.ends, f) }

// pluginPool holds the plugins of all configurations that are in use, by the
// key of their spec, so that a reload finds those of the one before it.
var pluginPool = caddy.NewUsagePool()

// pooledPlugin is a plugin in the pool.
type pooledPlugin struct{ *pluginhost.Plugin }

// Destruct stops the plugin.
func (p pooledPlugin) Destruct() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	p.Close(ctx)
	return nil
}

// stopTimeout is how long a plugin may take to be told of the last releases.
const stopTimeout = 5 * time.Second

// acquireProcess returns the plugin that runs as a process.
func (a *App) acquireProcess(ctx context.Context, spec pluginhost.Spec) (*pluginhost.Plugin, error) {
	return a.acquire(spec, func() (*pluginhost.Plugin, error) {
		return pluginhost.Start(ctx, spec, pluginLog(spec.Name))
	})
}

// acquireRenewed is acquireProcess for an executable that may have been rebuilt
// since the plugin was started. Then the new one takes over.
func (a *App) acquireRenewed(ctx context.Context, spec pluginhost.Spec) (*pluginhost.Plugin, error) {
	p, err := a.acquireProcess(ctx, spec)
	if err != nil {
		return nil, err
	}
	return p, p.Renew(ctx, spec)
}

// acquire returns the plugin of a spec, which start starts if there is none.
// The app gives it back at its end.
func (a *App) acquire(spec pluginhost.Spec, start func() (*pluginhost.Plugin, error)) (*pluginhost.Plugin, error) {
	key := spec.Key()
	v, _, err := pluginPool.LoadOrNew(key, func() (caddy.Destructor, error) {
		p, err := start()
		return pooledPlugin{p}, err
	})
	if err != nil {
		return nil, err
	}
	a.atEnd(func(context.Context) {
		if _, err := pluginPool.Delete(key); err != nil {
			pluginLog(spec.Name).Error("stop plugin", zap.Error(err))
		}
	})
	return v.(pooledPlugin).Plugin, nil
}

// plugin returns the plugin that serves a policy.
func (a *App) plugin(ctx context.Context, policyName string) (*pluginhost.Plugin, error) {
	if p, ok := a.plugins[policyName]; ok {
		return p, nil
	}
	if !slices.Contains(builtIn, policyName) {
		return nil, fmt.Errorf("no plugin %q", policyName)
	}
	return a.acquireBuiltIn(ctx, policyName)
}

// grants returns the declaration of a policy's plugin, or nil if it is built
// in and was granted nothing.
func (a *App) grants(policyName string) *Plugin {
	for i := range a.Plugins {
		if a.Plugins[i].Name == policyName {
			return &a.Plugins[i]
		}
	}
	return nil
}

// startTimeout is how long the policies of a site may take to be configured.
const startTimeout = 30 * time.Second

// Start configures the policies of the sites.
func (a *App) Start() error {
	a.started = true
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for _, start := range a.starts {
		if err := start(ctx); err != nil {
			return err
		}
	}
	a.shared.running.add(a)
	return nil
}

// Stop does nothing: requests may still be in flight. See Cleanup.
func (*App) Stop() error { return nil }

// Cleanup ends what the app uses as soon as no request uses it any more. On a
// reload Caddy calls it while requests of the old configuration are in flight.
func (a *App) Cleanup() error {
	end := func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		for _, f := range slices.Backward(a.ends) {
			f(ctx)
		}
	}
	if caddy.Exiting() || !a.started {
		// The server has waited for requests as long as it may. Those that are
		// left are told, and have a moment to release what they hold.
		a.stop()
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		a.uses.end(ctx, 0)
		end()
		return nil
	}
	go func() { // ends with the last request
		a.uses.end(context.Background(), linger)
		a.stop()
		end()
	}()
	return nil
}

// tracer returns the tracer for a request: that of Caddy's own tracing if it
// is on, which span tells, else that of the app, or nil if that has none.
func (a *App) tracer(span trace.Span) trace.Tracer {
	if span.SpanContext().IsValid() {
		return span.TracerProvider().Tracer(instrumentation, trace.WithInstrumentationVersion(Version()))
	}
	return a.tracing.tracer()
}

var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)

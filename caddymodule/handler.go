package caddymodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

func init() {
	caddy.RegisterModule(new(Handler))
	httpcaddyfile.RegisterHandlerDirective(appName, parseDirective)
	httpcaddyfile.RegisterDirectiveOrder(appName, httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterGlobalOption(appName, parseGlobalOption)
}

// Handler schedules AI requests: it asks policies which provider keys may
// serve a request and when it may start, proxies it, and tells the policies
// how it ended. Requests that are not AI requests go to the next handler; what
// nothing on the site answers is refused with status 404 or 405.
//
// Each answer to an AI request of a known caller carries the headers
// `X-Usher-Request-Id`, `X-Usher-Candidate` (who served it), `X-Usher-Model`
// (if that is a fallback of the model that was asked for) and `Server-Timing`
// (how long it took to select, to admit, and until the provider answered). An
// answer with `X-Usher-Reason` is a refusal of Usher's own.
//
// Bodies may be compressed by gzip or zstd; providers get them in plain, and
// otherwise as they are. Not passed on to providers are what a caller shows to
// this gateway (credentials, cookies), which account it says is to pay, trace
// context and baggage, the caller's address, and headers that begin with
// `X-Usher-`. Not passed on to callers are the provider's cookies, what it says
// of its own address and of the owner of the key, and of the limits of the one
// key that served the request (`x-ratelimit-*`).
type Handler struct {
	Config

	app       *App
	log       *zap.Logger
	chain     *chain
	observers map[*pluginhost.Plugin][]string
	directory *directory
	models    map[modelKey]*model
	listings  map[string][]format.Model // by the name of the format
	providers map[string]*provider
	keys      map[string]*model // by provider/key: the key alone
	allKeys   map[string]*model // by the name of the format: its keys that are in service
	holders   map[string]*model // by the name of the format: the key that holds files
	proxy     *httputil.ReverseProxy
	ready     chan struct{} // closed when the policies are configured
}

// A modelKey names a public model, as it is served in a format.
type modelKey struct{ format, name string }

// A model is a public model in a format: what its candidates speak.
type model struct {
	name      string
	catalog   *host.Catalog
	fallbacks []string
}

// A provider is where attempts are sent.
type provider struct {
	*Provider
	url       *url.URL
	transport http.RoundTripper
	secrets   map[string]string // by the name of the key
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.usher", New: func() caddy.Module { return new(Handler) }}
}

// parseDirective parses the directive `usher`.
func parseDirective(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	return handler, handler.UnmarshalCaddyfile(h.Dispenser)
}

// Provision checks the configuration, reads the secrets, and lets the plugins
// check the options of their policies. It changes nothing that lasts.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.log = ctx.Logger()
	h.ready = make(chan struct{})
	app, err := ctx.App(appName)
	if err != nil {
		return err
	}
	h.app = app.(*App)
	h.setDefaults()
	if err := h.check(h.app.policies()); err != nil {
		return err
	}
	repl := caddy.NewReplacer()
	var secretsErr, directoryErr, chainErr error
	secrets, secretsErr := h.secrets(repl)
	h.directory, directoryErr = h.Config.directory(repl)
	h.chain, chainErr = h.Config.chain(ctx, h.app)
	if err := errors.Join(secretsErr, directoryErr, chainErr); err != nil {
		return err
	}
	if err := h.provisionProviders(ctx, secrets); err != nil {
		return err
	}
	if err := h.provisionModels(); err != nil {
		return err
	}
	if err := h.provisionKeys(); err != nil {
		return err
	}
	h.proxy = h.newProxy()
	h.app.starts = append(h.app.starts, h.start)
	return nil
}

func (h *Handler) provisionProviders(ctx caddy.Context, secrets map[string]string) error {
	h.providers = make(map[string]*provider)
	for i := range h.Providers {
		p := &h.Providers[i]
		fail := func(err error) error {
			return h.Source.locate(fmt.Sprintf("/providers/%d", i), fmt.Errorf("provider %s: %w", p.Name, err))
		}
		transport, err := p.loadTransport(ctx)
		if err != nil {
			return fail(err)
		}
		for _, ops := range []*headers.HeaderOps{p.HeaderUp, p.HeaderDown} {
			if ops == nil {
				continue
			}
			if err := ops.Provision(ctx); err != nil {
				return fail(err)
			}
		}
		u, err := url.Parse(p.URL)
		if err != nil {
			return fail(err)
		}
		h.providers[p.Name] = &provider{Provider: p, url: u, transport: transport, secrets: make(map[string]string)}
		for j := range p.Keys {
			k := &p.Keys[j]
			secret := secrets[p.Name+"/"+k.Name]
			h.providers[p.Name].secrets[k.Name] = secret
			if k.version, err = keyVersion(p.Name, k.Name, secret); err != nil {
				return fail(err)
			}
		}
	}
	return nil
}

// idleConnections is how many idle connections to a provider are kept unless
// its transport says otherwise. Caddy's own default is made for many hosts.
const idleConnections = 512

// handshakeTimeout is how long TLS with a provider may take to begin, unless
// its transport says otherwise. Caddy's own default is for ever.
const handshakeTimeout = 10 * time.Second

// loadTransport returns the transport to the provider.
func (p *Provider) loadTransport(ctx caddy.Context) (http.RoundTripper, error) {
	if len(p.TransportRaw) == 0 {
		p.TransportRaw = caddyconfig.JSONModuleObject(reverseproxy.HTTPTransport{
			KeepAlive:   &reverseproxy.KeepAlive{MaxIdleConnsPerHost: idleConnections},
			DialTimeout: p.Timeouts.Connect,
		}, "protocol", "http", nil)
	}
	mod, err := ctx.LoadModule(p, "TransportRaw")
	if err != nil {
		return nil, fmt.Errorf("load transport: %w", err)
	}
	if t, ok := mod.(*reverseproxy.HTTPTransport); ok && t.Transport.TLSHandshakeTimeout == 0 {
		t.Transport.TLSHandshakeTimeout = cmp.Or(time.Duration(p.Timeouts.Connect), handshakeTimeout)
	}
	return mod.(http.RoundTripper), nil
}

func (h *Handler) provisionModels() error {
	all := h.catalog()
	h.models = make(map[modelKey]*model)
	h.listings = make(map[string][]format.Model)
	for i := range h.Models {
		name := h.Models[i].Name
		candidates, _ := all.of(name)
		for _, spoken := range format.Formats() {
			speaking := h.speaking(spoken, candidates)
			if len(speaking) == 0 {
				continue
			}
			catalog, err := host.NewCatalog(speaking)
			if err != nil {
				return h.Source.locate(fmt.Sprintf("/models/%d", i), fmt.Errorf("model %s: %w", name, err))
			}
			h.models[modelKey{spoken, name}] = &model{name: name, catalog: catalog, fallbacks: h.Models[i].Fallback}
			h.listings[spoken] = append(h.listings[spoken], format.Model{ID: name, OwnedBy: "usher"})
		}
	}
	return nil
}

// speaking returns the candidates whose provider speaks the format.
func (h *Handler) speaking(spoken string, candidates []policy.Candidate) []policy.Candidate {
	var speaking []policy.Candidate
	for _, c := range candidates {
		if h.providers[c.Provider].Format == spoken {
			speaking = append(speaking, c)
		}
	}
	return speaking
}

// start configures the policies.
func (h *Handler) start(ctx context.Context) error {
	if err := h.chain.start(ctx, h.app.atEnd); err != nil {
		return err
	}
	h.observers = h.chain.observers()
	h.app.inUse = append(h.app.inUse, h.chain.all()...)
	for _, plugin := range h.chain.plugins() {
		for _, m := range h.everyModel() {
			if err := plugin.AddCatalog(ctx, m.catalog); err != nil {
				return err
			}
			h.app.atEnd(func(ctx context.Context) {
				_ = plugin.RemoveCatalog(ctx, m.catalog) // a process that does not take it is ended soon
			})
		}
	}
	close(h.ready)
	return nil
}

// readyTimeout is how long a request waits for the policies to be configured,
// which is done while the server begins to listen.
const readyTimeout = 10 * time.Second

// ServeHTTP schedules AI requests, and passes others on.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	op, ok := format.Find(r)
	if !ok || op.Kind == format.Stored && h.holders[op.Format] == nil {
		return pass(w, r, next, op)
	}
	if !h.app.uses.enter() { // a new connection leads to the configuration after this one
		w.Header().Set("Connection", "close")
		op.WriteRefusal(w, format.Denied(policy.ReasonPluginUnavailable, time.Second))
		return nil
	}
	defer h.app.uses.leave()
	repl, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	who, ok := h.directory.identify(format.Credential(r.Header, r.URL.Query()), repl)
	if !ok {
		leaveUnread(w, r)
		w.Header().Set("WWW-Authenticate", "Bearer")
		op.WriteRefusal(w, format.UnknownCaller())
		return nil
	}
	switch op.Kind {
	case format.ListModels:
		op.WriteModels(w, h.listings[op.Format])
	case format.GetModel:
		h.writeModel(w, op, op.Model(r.URL.Path))
	default:
		if h.awaitPolicies(r.Context()) {
			h.serve(w, r, op, who, repl)
		} else {
			op.WriteRefusal(w, format.Denied(policy.ReasonPluginUnavailable, time.Second))
		}
	}
	return nil
}

// awaitPolicies waits until the policies are configured. It reports false if
// they are not in time.
func (h *Handler) awaitPolicies(ctx context.Context) bool {
	select {
	case <-h.ready: // almost always
		return true
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	select {
	case <-h.ready:
		return true
	case <-ctx.Done():
		return false
	}
}

func (h *Handler) writeModel(w http.ResponseWriter, op *format.Operation, name string) {
	if _, ok := h.models[modelKey{op.Format, name}]; !ok {
		op.WriteRefusal(w, format.UnknownModel(name))
		return
	}
	op.WriteModel(w, format.Model{ID: name, OwnedBy: "usher"})
}

// joinPath returns the path of a request at a provider whose URL has the path
// base. A base that ends in the version with which the path begins does not
// repeat it.
func joinPath(base, path string) string {
	base = strings.TrimSuffix(base, "/")
	if version, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); strings.HasSuffix(base, "/"+version) {
		base = strings.TrimSuffix(base, "/"+version)
	}
	return base + path
}

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)

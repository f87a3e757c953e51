package caddymodule

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"

	"github.com/usherproxy/usher/internal/format"
)

// Provider is an AI service: one base URL, reached with one or more keys.
type Provider struct {
	// The name under which models refer to the provider.
	Name string `json:"name"`

	// The API shape that the provider speaks: `openai`, `anthropic` or
	// `gemini`. It serves the callers who speak the same; nothing is
	// translated. Default: `openai`.
	Format string `json:"format,omitempty"`

	// Where the provider is: `http` or `https`, a host, and optionally a path
	// that is put before the path of each request. It may end in the version
	// (`/v1`), which is then not repeated. It holds no user, query or fragment.
	URL string `json:"url"`

	// The version of Azure's API, such as `2024-10-21`. Set it if the provider
	// is Azure's service with its deployment paths: `url` is then the resource
	// (`https://NAME.openai.azure.com`), the upstream models are the names of
	// deployments, and the key is sent as `api-key`. A caller's own
	// `api-version` wins. Azure's newer paths need none: there `url` ends in
	// `/openai/v1`. For the format `openai` only. Default: none.
	APIVersion string `json:"api_version,omitempty"`

	// Lets streams of chats and completions tell their usage: the request gets
	// `stream_options.include_usage` if the caller has not set it, and the chunk
	// with nothing but usage is taken out of the answer. Set it where limits of
	// tokens and traces should know the usage of such streams, and the provider
	// knows the option: one that does not may refuse the request. For the format
	// `openai` only. Default: false.
	StreamUsage bool `json:"stream_usage,omitempty"`

	// The priority of those keys that set none. Default: 0.
	Priority int `json:"priority,omitempty"`

	// Words about the provider for policies to go by, such as `region: eu`.
	Labels map[string]string `json:"labels,omitempty"`

	// The limits of the provider, over all its keys. Default: none.
	Limits []Limit `json:"limits,omitempty"`

	// Changes to the headers of requests to the provider. The key's own header
	// is set after them.
	HeaderUp *headers.HeaderOps `json:"header_up,omitempty"`

	// Changes to the headers of the provider's answers.
	HeaderDown *headers.HeaderOps `json:"header_down,omitempty"`

	// Sends the provider the header `traceparent` (and `tracestate`) of the span
	// of each attempt, so that its spans become part of the trace. Set it for
	// providers of your own; others would learn of your traces. Baggage is never
	// sent. Default: false.
	TraceContext bool `json:"trace_context,omitempty"`

	// How to connect, as in Caddy's `reverse_proxy`. Set it for a proxy, a
	// private certificate authority, or other timeouts. Default: `http` with
	// Caddy's defaults.
	TransportRaw json.RawMessage `json:"transport,omitempty" caddy:"namespace=http.reverse_proxy.transport inline_key=protocol"`

	// How long each part of an attempt may take.
	Timeouts Timeouts `json:"timeouts,omitzero"`

	// The keys (accounts) to use there. At least one.
	Keys []Key `json:"keys,omitempty"`
}

// Timeouts are how long the parts of an attempt may take. One that is over ends
// the attempt, is told by its name, and counts against the candidate. How long
// the whole request may take is for the site to say.
type Timeouts struct {
	// Until there is a connection, TLS included. Set it here only without a
	// `transport`, which says so itself. Default: that of the transport, 3s and
	// 10s for TLS.
	Connect caddy.Duration `json:"connect,omitempty"`

	// Until a stream has its first content; comments, pings and other preamble
	// do not count. Raise it for models that think longer. An answer that is no
	// stream has only the time of the whole request. Default: 5m.
	FirstEvent caddy.Duration `json:"first_event,omitempty"`

	// Between two pieces of an answer after that. A caller who reads slowly
	// takes none of it. Default: 5m.
	Idle caddy.Duration `json:"idle,omitempty"`
}

const (
	defaultFirstEventTimeout = caddy.Duration(5 * time.Minute)
	defaultIdleTimeout       = caddy.Duration(5 * time.Minute)
)

// Key is one key of an account with a provider.
type Key struct {
	// The name of the key, unique within its provider. It appears in traces,
	// metrics and logs.
	Name string `json:"name"`

	// Where the secret is: `{env.NAME}` or `{file./path}`, read when the
	// configuration is loaded, or `none` if the provider wants no credential.
	// The secret itself is an error, because whoever may read the
	// configuration could read it.
	Secret string `json:"secret"`

	// The account that the key belongs to. Keys of one account share its quotas:
	// when a plan's window is used up for one of them, it is for all. A name is
	// one within the provider; write `provider/name` for an account that
	// another provider is reached with, too. Default: an account of its own.
	Account string `json:"account,omitempty"`

	// The rank of the key: a lower number is preferred, and a higher one is
	// used only when no lower one can serve. Default: that of the provider.
	Priority *int `json:"priority,omitempty"`

	// The share of the key among those of equal priority; 0 means only if no
	// weighted one can serve. Default: 1.
	Weight *int `json:"weight,omitempty"`

	// The limits of the key. Default: none.
	Limits []Limit `json:"limits,omitempty"`

	// Takes the key out of service; its secret is not read. Default: false.
	Disabled bool `json:"disabled,omitempty"`

	// Words about the key. They win over equal words of the provider.
	Labels map[string]string `json:"labels,omitempty"`

	// The public models that the key may serve. Default: all that name the
	// provider.
	Models []string `json:"models,omitempty"`

	version string // of the secret, once that is known
}

// secretNone in place of a secret means that no credential is sent.
const secretNone = "none"

// formats are the API shapes that a provider may speak.
var formats = format.Formats()

func (p *Provider) setDefaults() {
	if p.Format == "" {
		p.Format = format.OpenAI
	}
	if p.Timeouts.FirstEvent == 0 {
		p.Timeouts.FirstEvent = defaultFirstEventTimeout
	}
	if p.Timeouts.Idle == 0 {
		p.Timeouts.Idle = defaultIdleTimeout
	}
}

// priorityOf returns the priority of k, which is one of p's keys.
func (p *Provider) priorityOf(k *Key) int {
	if k.Priority != nil {
		return *k.Priority
	}
	return p.Priority
}

// accountOf returns the account of k, which is one of p's keys.
func (p *Provider) accountOf(k *Key) string {
	switch {
	case k.Account == "":
		return p.Name + "/" + k.Name
	case strings.Contains(k.Account, "/"):
		return k.Account
	}
	return p.Name + "/" + k.Account
}

// weight returns k's weight.
func (k *Key) weight() int {
	if k.Weight != nil {
		return *k.Weight
	}
	return 1
}

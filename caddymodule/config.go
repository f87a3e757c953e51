package caddymodule

import (
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Config is what an operator writes: which providers there are, which models
// they serve, who may call, and which policies decide. It is the JSON of the
// handler `http.handlers.usher`.
//
// Order matters wherever there is a list: candidates are tried, and policies
// asked, in the order in which they are written, unless a policy orders them
// otherwise.
//
// Names of providers and keys, of groups and labels consist of letters,
// digits and `.`, `_`, `:`, `-`. Names of models and callers may also contain
// `/`, `@` and `+`.
type Config struct {
	// The AI providers that requests may be sent to. At least one.
	Providers []Provider `json:"providers,omitempty"`

	// The public models: the names that callers may ask for. At least one.
	// A request for any other model is refused.
	Models []Model `json:"models,omitempty"`

	// The callers that are known by a key of their own. If there are neither
	// callers nor a `caller_id`, the site is open to everybody; if there are,
	// a request that matches none of them is refused with status 401.
	Callers []Caller `json:"callers,omitempty"`

	// A placeholder whose value is the caller's name, such as
	// `{http.auth.user.id}`. Set it where something before this handler
	// identifies callers. It is asked if no key of `callers` matches; an empty
	// value, or one of more than 256 bytes, names nobody. A name that is listed
	// in `callers` gets the group, priority and limits of that entry.
	CallerID string `json:"caller_id,omitempty"`

	// The groups (tenants, teams) that callers may belong to.
	Groups []Group `json:"groups,omitempty"`

	// The limits of the whole fleet: of all requests together, over all replicas.
	// Sites whose admission policy has the same options are one fleet, and
	// callers, groups, providers, keys and models that are called the same there
	// are the same. Default: none.
	Limits []Limit `json:"limits,omitempty"`

	// Who holds what a provider's account stores and no model is named for:
	// files, uploads, batches, vector stores, conversations and fine-tuning
	// jobs. At most one for each format. All callers of the site share what is
	// there, and may list, read and delete it. Default: none, and such requests
	// go to the next handler.
	Files []Files `json:"files,omitempty"`

	// The selection policies, asked in this order: each sees what those before
	// it said, a skip is never undone, and the last order wins. Default: `keys`.
	Select []PolicyUse `json:"select,omitempty"`

	// The admission policies, asked in this order: all must admit, and only
	// the last may let a request wait. Default: `fifo`.
	Admit []PolicyUse `json:"admit,omitempty"`

	// The largest request body, in bytes, also of one that came compressed. A
	// larger one is refused with status 413. What is larger than 1 MiB is held
	// in a file in the directory of temporary files (`TMPDIR`) while the request
	// waits and runs, so there must be room for as many as come at once.
	// Default: 100 MiB.
	MaxBody int64 `json:"max_body,omitempty"`

	// How long a request may take, from its arrival to the last byte of its
	// answer, waiting included. Raise it for models that think longer.
	// Default: 10m.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// Sends a comment to a caller who waits for a stream of events, whenever
	// nothing has been sent for this long. Set it where something on the way
	// cuts connections that are silent. Its price: the first comment takes the
	// status 200 with it, and the headers of an answer that is yet to come, so
	// what goes wrong after that is told as an event of the stream, which not
	// every client looks for. Default: none are sent.
	Heartbeat caddy.Duration `json:"heartbeat,omitempty"`

	// The limits of WebSockets: OpenAI's Realtime API and its Responses API over
	// WebSocket. A session holds one lease from its beginning to its end.
	Session Session `json:"session,omitzero"`

	// How often a request may be sent to a provider at most, counting the
	// first time: 1 means no failover. At most 100. Default: 3.
	Attempts int `json:"attempts,omitempty"`

	// Where the Caddyfile said it. The adapter writes it, so that an error
	// found later can name the line; leave it out of JSON written by hand.
	Source SourceMap `json:"source,omitempty"`
}

// Limit is how much of something may be used at once, or per window of time.
// It holds over all replicas that share an admission store.
type Limit struct {
	// What is limited: `concurrency` (requests that run at once), `requests`
	// (requests per window) or `tokens` (tokens per window).
	Kind string `json:"kind"`

	// The limit, at least 1.
	Limit int64 `json:"limit"`

	// The length of the window, for `requests` and `tokens` only; required
	// there.
	Window caddy.Duration `json:"window,omitempty"`
}

// Session are the limits of WebSockets.
type Session struct {
	// How long nobody may send anything before the session is ended. Raise it
	// for people who think longer. Default: 15m.
	Idle caddy.Duration `json:"idle,omitempty"`

	// How long a session may take, from the arrival of its request, waiting
	// included. The `timeout` of the site does not hold for it. Default: 1h.
	Age caddy.Duration `json:"age,omitempty"`

	// The model, one of `models`, of a session whose query names none, as with
	// the Responses API. What is said in a session is not looked at but for its
	// usage, so requests in it may name models of the provider as they like.
	// Default: none, and such a session is refused.
	Model string `json:"model,omitempty"`
}

const (
	defaultSessionIdle = caddy.Duration(15 * time.Minute)
	defaultSessionAge  = caddy.Duration(time.Hour)
)

const (
	defaultMaxBody  = 100 << 20
	defaultTimeout  = caddy.Duration(10 * time.Minute)
	defaultAttempts = 3
	maxAttempts     = 100
)

// setDefaults fills in what the operator left out.
func (c *Config) setDefaults() {
	if c.MaxBody == 0 {
		c.MaxBody = defaultMaxBody
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Session.Idle == 0 {
		c.Session.Idle = defaultSessionIdle
	}
	if c.Session.Age == 0 {
		c.Session.Age = defaultSessionAge
	}
	if c.Attempts == 0 {
		c.Attempts = defaultAttempts
	}
	for i := range c.Providers {
		c.Providers[i].setDefaults()
	}
	c.Select = defaultPolicy(c.Select, policyKeys)
	c.Admit = defaultPolicy(c.Admit, policyFIFO)
}

package simulator

import (
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(new(Provider))
}

// ledgers holds what the providers count, by name, so that a count survives a
// reload of the configuration.
var ledgers = caddy.NewUsagePool()

// Provider simulates an AI provider that has the OpenAI API. It handles every
// request itself:
//
//	POST …/chat/completions     answered whole, or streamed if "stream" is true
//	POST …/completions          the same
//	POST …/responses            the same
//	POST …/embeddings           vectors that depend on the input only
//	POST …/moderations          nothing is flagged
//	POST …/images/generations   a picture of one pixel
//	GET  …/models[/ID]          one model; any model name is accepted anyway
//	GET  /simulator/stats       what was counted, see [Stats]
//	POST /simulator/faults      make a key, or all of them, fail: see [Fault]
//	DELETE /simulator/faults    end all faults
//
// Answers are a text of a fixed number of tokens, each a word, that begins
// with the names of the provider, the key and the model.
type Provider struct {
	// The name, under which it counts and answers. Default: "simulator".
	Name string `json:"name,omitempty"`

	// The time until the first token. Default: none.
	Latency caddy.Duration `json:"latency,omitempty"`

	// The speed of an answer after its first token. Default: as fast as it goes.
	TokensPerSecond float64 `json:"tokens_per_second,omitempty"`

	// The length of an answer, unless the request asks for less. Default: 20.
	Tokens int `json:"tokens,omitempty"`

	// The keys that are accepted. Default: any key, and none.
	Keys []Key `json:"keys,omitempty"`

	// The share of requests that fail, between 0 and 1, spread evenly: 0.25
	// fails every fourth request. Default: 0.
	ErrorRate float64 `json:"error_rate,omitempty"`

	// The status with which they fail. Default: 500.
	ErrorStatus int `json:"error_status,omitempty"`

	ledger *ledger
	keys   map[string]*Key
}

// Key is an API key that a [Provider] accepts, and its limits.
type Key struct {
	// The name of the key in answers and counts.
	Name string `json:"name"`

	// The secret that requests carry. Placeholders are replaced.
	Secret string `json:"secret"`

	// How many requests may run at once; more are refused with 429.
	// Default: any number.
	Concurrency int `json:"concurrency,omitempty"`

	// How many requests may start within a window; more are refused with 429.
	// Default: any number.
	Requests *Rate `json:"requests,omitempty"`

	// The status with which each request is refused, and the error code in
	// its body. Default: none is refused.
	Status int    `json:"status,omitempty"`
	Code   string `json:"code,omitempty"`

	// What refusals say in Retry-After. Default: the end of the window for
	// requests, otherwise one second for 429 and 503.
	RetryAfter caddy.Duration `json:"retry_after,omitempty"`
}

// Rate is a number of requests per window.
type Rate struct {
	Limit  int            `json:"limit"`
	Window caddy.Duration `json:"window"`
}

// CaddyModule returns the Caddy module information.
func (*Provider) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.simulated_provider",
		New: func() caddy.Module { return new(Provider) },
	}
}

// Provision fills in defaults and secrets.
func (p *Provider) Provision(caddy.Context) error {
	if p.Name == "" {
		p.Name = "simulator"
	}
	if p.Tokens == 0 {
		p.Tokens = 20
	}
	if p.ErrorStatus == 0 {
		p.ErrorStatus = http.StatusInternalServerError
	}
	repl := caddy.NewReplacer()
	p.keys = make(map[string]*Key, len(p.Keys))
	for i := range p.Keys {
		k := &p.Keys[i]
		secret, err := repl.ReplaceOrErr(k.Secret, true, true)
		if err != nil {
			return fmt.Errorf("secret of key %s: %w", k.Name, err)
		}
		if p.keys[secret] != nil {
			return fmt.Errorf("keys %s and %s have the same secret", p.keys[secret].Name, k.Name)
		}
		p.keys[secret] = k
	}
	shared, _ := ledgers.LoadOrStore(p.Name, newLedger())
	p.ledger = shared.(*ledger)
	return nil
}

// Validate checks the settings.
func (p *Provider) Validate() error {
	if p.Latency < 0 || p.TokensPerSecond < 0 || p.Tokens < 0 || math.IsNaN(p.TokensPerSecond) {
		return fmt.Errorf("latency, tokens_per_second and tokens must not be negative")
	}
	if !(p.ErrorRate >= 0 && p.ErrorRate <= 1) {
		return fmt.Errorf("error_rate is %v; it is a share between 0 and 1", p.ErrorRate)
	}
	if !isErrorStatus(p.ErrorStatus) {
		return fmt.Errorf("error_status is %d; it is between 400 and 599", p.ErrorStatus)
	}
	names := make(map[string]bool, len(p.Keys))
	for _, k := range p.Keys {
		if err := k.validate(); err != nil {
			return fmt.Errorf("key %s: %w", k.Name, err)
		}
		if names[k.Name] {
			return fmt.Errorf("key %s is declared twice", k.Name)
		}
		names[k.Name] = true
	}
	return nil
}

func (k Key) validate() error {
	switch {
	case k.Name == "" || k.Secret == "":
		return fmt.Errorf("a key has a name and a secret")
	case k.Concurrency < 0:
		return fmt.Errorf("concurrency must not be negative")
	case k.Requests != nil && (k.Requests.Limit <= 0 || k.Requests.Window <= 0):
		return fmt.Errorf("requests is a number per window, such as 60/1m")
	case k.Status != 0 && !isErrorStatus(k.Status):
		return fmt.Errorf("status is %d; it is between 400 and 599", k.Status)
	case k.RetryAfter < 0:
		return fmt.Errorf("retry_after must not be negative")
	}
	return nil
}

func isErrorStatus(s int) bool { return s >= 400 && s <= 599 }

// Cleanup forgets the counts when no provider of the name is left.
func (p *Provider) Cleanup() error {
	if p.ledger == nil {
		return nil
	}
	_, err := ledgers.Delete(p.Name)
	return err
}

// pace tells when the token of index i of an answer that began at start is due.
func (p *Provider) pace(start time.Time, i int) time.Time {
	due := start.Add(time.Duration(p.Latency))
	if p.TokensPerSecond > 0 {
		due = due.Add(time.Duration(float64(i) / p.TokensPerSecond * float64(time.Second)))
	}
	return due
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Provider)(nil)
	_ caddy.Validator             = (*Provider)(nil)
	_ caddy.CleanerUpper          = (*Provider)(nil)
	_ caddyhttp.MiddlewareHandler = (*Provider)(nil)
)

package caddymodule

import (
	"encoding/json"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// PolicyUse is one use of a policy, with its options.
type PolicyUse struct {
	// The policy: `keys` (for `select`), `fifo` (for `admit`), a plugin
	// declared in the app `usher`, or `none` for no policy at all, which must
	// stand alone.
	Policy string `json:"policy"`

	// How long one call of the policy may take; time spent waiting for
	// capacity does not count. Lower it if a slow policy should fail sooner.
	// Default: 2s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// What to do if the policy cannot be asked: `closed` refuses the request
	// with status 503, `open` goes on as if the policy were not there. Use
	// `open` only for policies that are advice: limits do not hold while a
	// policy that keeps them is left out. Default: `closed`.
	OnError string `json:"on_error,omitempty"`

	// The options of the policy itself, a JSON object. Each of its strings may
	// contain `{env.NAME}` and `{file./path}`, which are replaced when the
	// configuration is loaded; other braces are left alone. Default: the
	// policy's own defaults.
	ConfigRaw json.RawMessage `json:"config,omitempty"`
}

// The policies that are always there. Plugins cannot take these names.
const (
	policyKeys = "keys"
	policyFIFO = "fifo"
	policyNone = "none"
)

const (
	onErrorClosed = "closed"
	onErrorOpen   = "open"
)

const defaultPolicyTimeout = caddy.Duration(2 * time.Second)

// defaultPolicy returns uses with its defaults, or one use of the policy of
// the given name if there are none.
func defaultPolicy(uses []PolicyUse, name string) []PolicyUse {
	if len(uses) == 0 {
		uses = []PolicyUse{{Policy: name}}
	}
	for i := range uses {
		uses[i].setDefaults()
	}
	return uses
}

func (u *PolicyUse) setDefaults() {
	if u.Timeout == 0 {
		u.Timeout = defaultPolicyTimeout
	}
	if u.OnError == "" {
		u.OnError = onErrorClosed
	}
}

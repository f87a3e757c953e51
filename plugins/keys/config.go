package keys

import (
	"errors"
	"time"

	"github.com/usherproxy/usher/plugins/keys/internal/board"
	"github.com/usherproxy/usher/sdk"
)

// Config is what the operator writes in the block of the policy.
type Config struct {
	// Store says where what is learned lives: "memory", for each replica apart,
	// or "postgres", for all of them together. The default is memory.
	Store string `json:"store"`

	// DSN says how to reach the database of store "postgres", as a URL or in
	// the form "host=db user=usher".
	DSN string `json:"dsn"`

	// Schema is the schema of that database that the store keeps its table in.
	// It is created if it is not there. The default is usher.
	Schema string `json:"schema"`

	// Order is how candidates of equal priority are ranked. The default is
	// affinity, health and weighted.
	Order Order `json:"order"`

	// Plans are the values of the label "plan", the preferred first, for the
	// order plan.
	Plans Names `json:"plans"`

	// QuotaReserve is the per cent of each quota that is kept. The default is
	// 0. Raise it if what is left is wanted for work that does not pass here.
	QuotaReserve float64 `json:"quota_reserve"`

	// Breaker says when a failing key is left alone.
	Breaker BreakerConfig `json:"breaker"`

	// Cooldown is how long a candidate is left alone after a rate limit that
	// does not say when to come back. The default is 10s.
	Cooldown sdk.Duration `json:"cooldown"`

	// CooldownMax is the longest cooldown after a rate limit, whatever the
	// provider says. The default is 744h, which is the longest window of any
	// plan. Lower it if a provider exaggerates.
	CooldownMax sdk.Duration `json:"cooldown_max"`

	// QuotaRetry is how long a key is left alone after a used-up quota that
	// does not say when it resets. The default is 10m.
	QuotaRetry sdk.Duration `json:"quota_retry"`

	// InvalidRetry is how long a key that its provider refused is left alone
	// at first. The default is 1m.
	InvalidRetry sdk.Duration `json:"invalid_retry"`

	// InvalidRetryMax is how long it is left alone at most: each refusal
	// doubles the time. The default is 10m.
	InvalidRetryMax sdk.Duration `json:"invalid_retry_max"`
}

// BreakerConfig says when a failing key is left alone, and for how long.
type BreakerConfig struct {
	// Failures in a row open the breaker. The default is 5; 0 turns the
	// breaker off.
	Failures int `json:"failures"`

	// Window is the time within which they must lie. The default is 1m.
	Window sdk.Duration `json:"window"`

	// Open is how long the breaker stays open at first. The default is 1m.
	Open sdk.Duration `json:"open"`

	// OpenMax is how long it stays open at most: each failed probe doubles
	// the time. The default is 32m.
	OpenMax sdk.Duration `json:"open_max"`

	// ProbeTimeout is when the next probe passes although the last one has
	// not ended. The default is 30s. Raise it if requests take longer than
	// that before their first event.
	ProbeTimeout sdk.Duration `json:"probe_timeout"`
}

// DefaultConfig returns the configuration of an empty block.
func DefaultConfig() Config {
	return Config{
		Store:  storeMemory,
		Schema: "usher",
		Order:  Order{Affinity, HealthOrder, Weighted},
		Breaker: BreakerConfig{
			Failures:     5,
			Window:       sdk.Duration(time.Minute),
			Open:         sdk.Duration(time.Minute),
			OpenMax:      sdk.Duration(32 * time.Minute),
			ProbeTimeout: sdk.Duration(30 * time.Second),
		},
		Cooldown:        sdk.Duration(10 * time.Second),
		CooldownMax:     sdk.Duration(maxQuota),
		QuotaRetry:      sdk.Duration(10 * time.Minute),
		InvalidRetry:    sdk.Duration(time.Minute),
		InvalidRetryMax: sdk.Duration(10 * time.Minute),
	}
}

// The stores.
const (
	storeMemory   = "memory"
	storePostgres = "postgres"
)

// maxFailures bounds what a breaker remembers.
const maxFailures = 1000

// Validate reports all options that make no sense.
func (c Config) Validate() error {
	errs := []error{
		positive("breaker.window", c.Breaker.Window),
		positive("breaker.open", c.Breaker.Open),
		positive("breaker.probe_timeout", c.Breaker.ProbeTimeout),
		positive("cooldown", c.Cooldown),
		positive("quota_retry", c.QuotaRetry),
		positive("invalid_retry", c.InvalidRetry),
	}
	errs = append(errs, c.Order.validate(), c.validateStore())
	if c.Order.has(Plan) != (len(c.Plans) > 0) {
		errs = append(errs, sdk.OptionError("plans", "goes with order plan: one is nothing without the other"))
	}
	if !(c.QuotaReserve >= 0 && c.QuotaReserve < 100) {
		errs = append(errs, sdk.OptionError("quota_reserve", "is %v, want 0 to less than 100 per cent", c.QuotaReserve))
	}
	if c.Breaker.Failures < 0 || c.Breaker.Failures > maxFailures {
		errs = append(errs, sdk.OptionError("breaker.failures", "is %d, want 0 to %d", c.Breaker.Failures, maxFailures))
	}
	if time.Duration(c.Breaker.Window) > retention {
		errs = append(errs, sdk.OptionError("breaker.window", "is %v, want at most %v", c.Breaker.Window, retention))
	}
	if c.Breaker.OpenMax < c.Breaker.Open {
		errs = append(errs, sdk.OptionError("breaker.open_max", "is %v, less than open (%v)", c.Breaker.OpenMax, c.Breaker.Open))
	}
	if c.CooldownMax < c.Cooldown {
		errs = append(errs, sdk.OptionError("cooldown_max", "is %v, less than cooldown (%v)", c.CooldownMax, c.Cooldown))
	}
	if c.InvalidRetryMax < c.InvalidRetry {
		errs = append(errs, sdk.OptionError("invalid_retry_max", "is %v, less than invalid_retry (%v)", c.InvalidRetryMax, c.InvalidRetry))
	}
	return errors.Join(errs...)
}

func (c Config) validateStore() error {
	switch {
	case c.Store != storeMemory && c.Store != storePostgres:
		return sdk.OptionError("store", "is %q, want %s or %s", c.Store, storeMemory, storePostgres)
	case c.Store == storeMemory && c.DSN != "":
		return sdk.OptionError("dsn", "is used with store postgres only")
	case c.Store == storeMemory:
		return nil
	case c.DSN == "":
		return sdk.OptionError("dsn", "store postgres needs to know its database")
	}
	var errs []error
	if err := board.CheckDSN(c.DSN); err != nil {
		errs = append(errs, sdk.OptionError("dsn", "%v", err))
	}
	if err := board.CheckSchema(c.Schema); err != nil {
		errs = append(errs, sdk.OptionError("schema", "%v", err))
	}
	return errors.Join(errs...)
}

func positive(option string, d sdk.Duration) error {
	if d <= 0 {
		return sdk.OptionError(option, "is %v, want more than 0s", d)
	}
	return nil
}

// credential returns the numbers of the breakers that guard against refused
// keys: the first refusal opens them.
func (c Config) credential() BreakerConfig {
	return BreakerConfig{
		Failures:     1,
		Window:       sdk.Duration(retention),
		Open:         c.InvalidRetry,
		OpenMax:      c.InvalidRetryMax,
		ProbeTimeout: c.Breaker.ProbeTimeout,
	}
}

package fifo

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/usherproxy/usher/sdk"
)

// Config is the configuration of one instance.
type Config struct {
	// Store says where leases and queues live: "memory".
	Store string `json:"store"`

	// Order says which requests may pass which others.
	Order Order `json:"order"`

	// QueueLimit is how many requests may wait for one scope. 0 means no
	// limit. Raise it together with memory: each waiting request holds a
	// connection and a body.
	QueueLimit int `json:"queue_limit"`

	// MaxWait is how long one request may wait. 0 means no limit.
	MaxWait sdk.Duration `json:"max_wait"`

	// MaxPasses is how often a request may be passed before room is kept for
	// it. 0 means no limit. Lower it if requests that need several scarce
	// things at once wait too long, at the cost of room that stands empty.
	MaxPasses int `json:"max_passes"`
}

// DefaultConfig returns the configuration that options are decoded over.
func DefaultConfig() Config {
	return Config{
		Store:      "memory",
		Order:      OrderBestEffort,
		QueueLimit: 1000,
		MaxWait:    sdk.Duration(time.Minute),
		MaxPasses:  8,
	}
}

// Validate returns what is wrong with c.
func (c Config) Validate() error {
	return errors.Join(
		oneOf("store", c.Store, "memory"),
		oneOf("order", string(c.Order), string(OrderBestEffort), string(OrderStrict)),
		notNegative("queue_limit", c.QueueLimit),
		notNegative("max_wait", c.MaxWait),
		notNegative("max_passes", c.MaxPasses),
	)
}

func (c Config) rules() Rules {
	return Rules{Order: c.Order, QueueLimit: c.QueueLimit, MaxWait: time.Duration(c.MaxWait), MaxPasses: c.MaxPasses}
}

func oneOf(option, value string, words ...string) error {
	if slices.Contains(words, value) {
		return nil
	}
	return sdk.OptionError(option, "%q is none of %q", value, words)
}

func notNegative[N int | sdk.Duration](option string, value N) error {
	if value >= 0 {
		return nil
	}
	return sdk.OptionError(option, "%s is negative", fmt.Sprint(value))
}

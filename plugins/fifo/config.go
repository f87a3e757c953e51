package fifo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/outage"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/sdk"
)

// Config is the configuration of one instance.
type Config struct {
	// Store says where leases and queues live: "memory" or "postgres".
	Store string `json:"store"`

	// DSN says how to reach the database of store "postgres", as a URL or in
	// the form "host=db user=usher".
	DSN string `json:"dsn"`

	// Schema is the schema of that database that the store keeps its tables
	// in. It is created if it is not there.
	Schema string `json:"schema"`

	// OnStoreError says what becomes of requests while that database is out of
	// reach.
	OnStoreError OnStoreError `json:"on_store_error"`

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

// The stores.
const (
	storeMemory   = "memory"
	storePostgres = "postgres"
)

// OnStoreError says what becomes of requests while the database of the store is
// out of reach. The set is closed.
type OnStoreError = outage.Mode

// What may become of them.
const (
	// StoreErrorClosed refuses them. It is the default.
	StoreErrorClosed = outage.Closed
	// StoreErrorLocal admits them within this replica's share of each limit.
	StoreErrorLocal = outage.Local
	// StoreErrorOpen admits them beyond any limit.
	StoreErrorOpen = outage.Open
)

// DefaultConfig returns the configuration that options are decoded over.
func DefaultConfig() Config {
	return Config{
		Store:        storeMemory,
		Schema:       "usher",
		OnStoreError: StoreErrorClosed,
		Order:        OrderBestEffort,
		QueueLimit:   1000,
		MaxWait:      sdk.Duration(time.Minute),
		MaxPasses:    8,
	}
}

// Validate returns what is wrong with c.
func (c Config) Validate() error {
	return errors.Join(
		oneOf("store", c.Store, storeMemory, storePostgres),
		c.validateDatabase(),
		oneOf("on_store_error", string(c.OnStoreError), string(StoreErrorClosed), string(StoreErrorLocal), string(StoreErrorOpen)),
		oneOf("order", string(c.Order), string(OrderBestEffort), string(OrderStrict)),
		notNegative("queue_limit", c.QueueLimit),
		notNegative("max_wait", c.MaxWait),
		notNegative("max_passes", c.MaxPasses),
	)
}

func (c Config) validateDatabase() error {
	switch {
	case c.Store != storePostgres && c.DSN != "":
		return sdk.OptionError("dsn", "is used with store postgres only")
	case c.Store != storePostgres && c.OnStoreError != StoreErrorClosed:
		return sdk.OptionError("on_store_error", "is used with store postgres only")
	case c.Store != storePostgres:
		return nil
	case c.DSN == "":
		return sdk.OptionError("dsn", "store postgres needs to know its database")
	}
	var errs []error
	if err := postgres.CheckDSN(c.DSN); err != nil {
		errs = append(errs, sdk.OptionError("dsn", "%v", err))
	}
	if err := postgres.CheckSchema(c.Schema); err != nil {
		errs = append(errs, sdk.OptionError("schema", "%v", err))
	}
	return errors.Join(errs...)
}

// Probe returns what is wrong for sure with the database that c names, such as a
// wrong password. A database that cannot be reached may be right.
func (c Config) Probe() error {
	if c.Store != storePostgres {
		return nil
	}
	p, ok := errors.AsType[*postgres.Problem](postgres.Probe(context.Background(), c.DSN, c.Schema))
	if !ok || !p.Certain {
		return nil
	}
	return sdk.OptionError(p.Option, "%s", p.Text)
}

func (c Config) rules() Rules {
	return Rules{Order: c.Order, QueueLimit: c.QueueLimit, MaxWait: time.Duration(c.MaxWait), MaxPasses: c.MaxPasses}
}

func oneOf(option, value string, words ...string) error {
	if slices.Contains(words, value) {
		return nil
	}
	return sdk.OptionError(option, "must be one of %s, not %q", strings.Join(words, ", "), value)
}

func notNegative[N int | sdk.Duration](option string, value N) error {
	if value >= 0 {
		return nil
	}
	return sdk.OptionError(option, "%s is negative", fmt.Sprint(value))
}

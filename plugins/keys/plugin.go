package keys

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// A Plugin holds what was learned of the keys, for all instances of the
// policy. Its fields may be replaced before the first instance is built.
type Plugin struct {
	// Clock tells the time. The default is [time.Now].
	Clock func() time.Time

	// Dice rolls the seed of one selection. The default is a random one.
	Dice func() Seed

	// Logger hears of breakers that open and close. The default is
	// [slog.Default] at the time of the event.
	Logger *slog.Logger

	memory   *state
	stores   stores
	sessions sessions
}

// New returns a plugin that has learned nothing.
func New() *Plugin {
	return &Plugin{
		Clock:  time.Now,
		Dice:   func() Seed { return Seed(rand.Uint64()) },
		memory: newState(),
	}
}

// Definition describes the policy, under the name "keys".
func (p *Plugin) Definition() sdk.Definition {
	return sdk.Define("keys", DefaultConfig(), p.build)
}

func (p *Plugin) build(_ context.Context, config Config) (sdk.Policies, error) {
	s := &selector{Plugin: p, state: p.memory, config: config, scales: config.Order.scales(), last: config.Order.last()}
	policies := sdk.Policies{Selection: s, Observer: s, Operable: s}
	if config.Store == storePostgres {
		store, leave, err := p.open(storeID{config.DSN, config.Schema})
		if err != nil {
			return sdk.Policies{}, err
		}
		s.state, s.board, policies.Close = store.state, store.board, leave
	}
	return policies, nil
}

// logMove logs that a breaker opened or closed.
func (p *Plugin) logMove(ctx context.Context, res *policy.AttemptResult, m move) {
	log := p.Logger
	if log == nil {
		log = slog.Default()
	}
	log = log.With("provider", res.Candidate.Provider, "key", res.Candidate.Key)
	switch {
	case !m.Open:
		log.InfoContext(ctx, "key is back", "breaker", m.guard)
	case m.guard == guardCircuit:
		log.WarnContext(ctx, "key fails and is left alone",
			"format", res.Format, "disposition", res.Disposition, "failures", m.Failures, "until", m.Until)
	default:
		log.WarnContext(ctx, "provider refused key",
			"guard", m.guard, "model", res.Candidate.Model, "status", res.Status, "until", m.Until)
	}
}

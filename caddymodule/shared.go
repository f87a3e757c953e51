package caddymodule

import (
	"context"

	"github.com/caddyserver/caddy/v2"
)

// shared is what all configurations of this process have in common, so that a
// reload forgets nothing.
type shared struct {
	facts     *facts
	decisions decisions
	origins   origins
	running   running
	waiting   waiting
	budgets   budgets
}

// Destruct has nothing to end.
func (*shared) Destruct() error { return nil }

// sharedPool holds the one shared value while an app uses it.
var sharedPool = caddy.NewUsagePool()

const sharedKey = "shared"

func acquireShared(atEnd func(func(context.Context))) *shared {
	v, _ := sharedPool.LoadOrStore(sharedKey, &shared{facts: newFacts()})
	atEnd(func(context.Context) {
		_, _ = sharedPool.Delete(sharedKey) // Destruct returns nil
	})
	return v.(*shared)
}

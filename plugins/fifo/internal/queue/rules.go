package queue

import "time"

// An Order says which tickets may pass which others.
type Order string

// The orders. The set is closed.
const (
	// OrderBestEffort lets a ticket be passed on scopes that it does not wait
	// for.
	OrderBestEffort Order = "best_effort_fifo"
	// OrderStrict lets nobody pass a ticket on any scope that it uses.
	OrderStrict Order = "strict_fifo"
)

// Rules say how a request may wait. Each request brings its own.
type Rules struct {
	// Order says who may pass it. The zero value is OrderBestEffort.
	Order Order

	// QueueLimit is how many tickets may wait for a scope that it would wait
	// for. 0 means no limit.
	QueueLimit int

	// MaxWait is how long it may wait. 0 means no limit. Who calls the queue
	// has to enforce it; the queue only knows that nobody waits longer.
	MaxWait time.Duration

	// MaxPasses is how often it may be passed before room is kept for it. 0
	// means no limit.
	MaxPasses int
}

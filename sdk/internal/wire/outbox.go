package wire

import (
	"context"
	"sync"
)

// MaxBatch is how many calls or answers are put into one message.
const MaxBatch = 128

// An Outbox collects what many have to say, for the one who says all that there
// is at a time. It is safe for concurrent use by those who put.
type Outbox[T any] struct {
	wake chan struct{} // has room for one

	mu     sync.Mutex
	queue  []T
	spare  []T // what was taken before, to be used again
	closed bool
}

// NewOutbox returns an empty outbox.
func NewOutbox[T any]() *Outbox[T] { return &Outbox[T]{wake: make(chan struct{}, 1)} }

// Put adds to the outbox, unless that is closed. It does not block.
func (o *Outbox[T]) Put(v T) {
	o.mu.Lock()
	if !o.closed {
		o.queue = append(o.queue, v)
	}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Take returns all that there is, and waits for it if there is nothing. It
// returns nil when ctx has ended. What it returns is valid until the next call.
func (o *Outbox[T]) Take(ctx context.Context) []T {
	for {
		o.mu.Lock()
		clear(o.spare)
		taken := o.queue
		o.queue, o.spare = o.spare[:0], taken
		o.mu.Unlock()
		if len(taken) > 0 {
			return taken
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// Close drops what is in the outbox, and whatever will be put.
func (o *Outbox[T]) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.queue, o.spare = true, nil, nil
}

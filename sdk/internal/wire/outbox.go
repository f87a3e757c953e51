package wire

import "sync"

// MaxBatch is how many calls or answers are put into one message.
const MaxBatch = 128

// An Outbox sends what many have to say, all that there is at a time. Whoever
// puts something while nothing is being sent sends it, and what others put
// meanwhile: no goroutine has to be woken for it. It is safe for concurrent use.
type Outbox[T any] struct {
	send func([]T) (rest func())
	sent func([]T)

	mu      sync.Mutex // guards what follows
	idle    sync.Cond  // sending is false
	queue   []T
	spare   []T // what was sent before, to be used again
	sending bool
	closed  bool
}

// NewOutbox returns an empty outbox. What is put is passed to send, by one
// goroutine at a time. It must not block: where it would, it returns what sends
// the rest and may block, which is called in a goroutine of its own. What has
// been sent is passed to sent, after which nobody has it any more.
func NewOutbox[T any](send func([]T) (rest func()), sent func([]T)) *Outbox[T] {
	o := &Outbox[T]{send: send, sent: sent}
	o.idle.L = &o.mu
	return o
}

// Put sends v, unless the outbox is closed. It does not block.
func (o *Outbox[T]) Put(v T) {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return
	}
	o.queue = append(o.queue, v)
	begin := !o.sending
	o.sending = true
	o.mu.Unlock()
	if begin {
		o.sendAll()
	}
}

// sendAll sends until there is nothing more to send.
func (o *Outbox[T]) sendAll() {
	for {
		all := o.take()
		if all == nil {
			return
		}
		if rest := o.send(all); rest != nil {
			go func() { // ends at the latest with the connection
				rest()
				o.sent(all)
				o.sendAll()
			}()
			return
		}
		o.sent(all)
	}
}

// take returns all that there is, or nil, after which nothing is being sent.
func (o *Outbox[T]) take() []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.spare)
	if len(o.queue) == 0 {
		o.sending = false
		o.idle.Broadcast()
		return nil
	}
	all := o.queue
	o.queue, o.spare = o.spare[:0], all
	return all
}

// Close drops what is in the outbox, and whatever will be put, and waits until
// nothing is being sent. The connection must have ended, or what waits for it
// would not.
func (o *Outbox[T]) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.queue = true, nil
	for o.sending {
		o.idle.Wait()
	}
	o.spare = nil
}

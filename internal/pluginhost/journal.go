package pluginhost

import (
	"context"
	"sync"

	"github.com/usherproxy/usher/sdk/host"
)

// A journal holds what a plugin has to be told and has not acknowledged.
type journal struct {
	wake chan struct{} // has room for one

	mu   sync.Mutex // guards what follows
	next *batch     // what was posted and is not on its way
	last *batch     // what is on its way, or was the last to be
}

// A batch is what is told together. Observations come first, so that a
// candidate that is freed is judged by what it just did.
type batch struct {
	observations map[string][]host.Observation // by instance
	releases     []host.Release
	cancels      map[string][]host.Ticket // by instance

	acknowledged chan struct{} // closed when all of it has been acknowledged
}

// maxObservations is how many observations are kept for an instance. The
// oldest are lost: a lesson that comes later.
const maxObservations = 10_000

func newJournal() *journal {
	nothing := newBatch()
	close(nothing.acknowledged)
	return &journal{wake: make(chan struct{}, 1), next: newBatch(), last: nothing}
}

func newBatch() *batch {
	return &batch{
		observations: make(map[string][]host.Observation),
		cancels:      make(map[string][]host.Ticket),
		acknowledged: make(chan struct{}),
	}
}

func (b *batch) empty() bool {
	return len(b.observations)+len(b.releases)+len(b.cancels) == 0
}

func (b *batch) observe(instance string, o host.Observation) {
	kept := b.observations[instance]
	kept = kept[max(0, len(kept)+1-maxObservations):]
	b.observations[instance] = append(kept, o)
}

func (b *batch) cancel(instance string, t host.Ticket) {
	b.cancels[instance] = append(b.cancels[instance], t)
}

// post adds something to the next batch. It does not block. The returned
// channel is closed when it has been acknowledged.
func (j *journal) post(add func(*batch)) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	add(j.next)
	select {
	case j.wake <- struct{}{}:
	default:
	}
	return j.next.acknowledged
}

// take returns what was posted since the last time, for the caller to deliver
// and to close its channel, or nil.
func (j *journal) take() *batch {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.next.empty() {
		return nil
	}
	j.last, j.next = j.next, newBatch()
	return j.last
}

// flushed waits until all that was posted before has been acknowledged, or
// until ctx ends.
func (j *journal) flushed(ctx context.Context) {
	j.mu.Lock()
	b := j.next
	if b.empty() {
		b = j.last
	}
	j.mu.Unlock()
	select {
	case <-b.acknowledged:
	case <-ctx.Done():
	}
}

package pluginhost

import (
	"context"
	"sync"
	"time"

	"github.com/usherproxy/usher/sdk/host"
)

// A journal holds what a plugin has to be told and has not acknowledged.
type journal struct {
	wake chan struct{} // has room for one

	mu   sync.Mutex  // guards what follows
	next *batch      // what was posted and is not on its way
	last *batch      // what is on its way, or was the last to be
	rest *time.Timer // ends the rest of what is in no hurry; nil while nothing rests
}

// restTime is how long a success rests, which changes no decision that cannot
// wait: it is told together with the release that follows, or with others.
const restTime = 5 * time.Millisecond

// A batch is what is told together.
type batch struct {
	host.Report
	acknowledged chan struct{} // closed when all of it has been acknowledged
}

// maxObservations is how many observations are kept. The oldest are lost: a
// lesson that comes later.
const maxObservations = 10_000

func newJournal() *journal {
	nothing := newBatch()
	close(nothing.acknowledged)
	return &journal{wake: make(chan struct{}, 1), next: newBatch(), last: nothing}
}

func newBatch() *batch { return &batch{acknowledged: make(chan struct{})} }

func (b *batch) observe(o host.Observation) {
	kept := b.Observations
	b.Observations = append(kept[max(0, len(kept)+1-maxObservations):], o)
}

// part takes up to n entries out of the batch, in the order in which they are
// told.
func (b *batch) part(n int) *host.Report {
	r := &host.Report{}
	r.Observations, b.Observations = split(b.Observations, n)
	r.Releases, b.Releases = split(b.Releases, n-r.Len())
	r.Cancels, b.Cancels = split(b.Cancels, n-r.Len())
	return r
}

func split[T any](all []T, n int) (first, rest []T) {
	n = min(n, len(all))
	return all[:n:n], all[n:]
}

// post adds something to the next batch. It does not block. The returned
// channel is closed when it has been acknowledged.
func (j *journal) post(add func(*batch)) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	add(j.next)
	j.hurryLocked()
	return j.next.acknowledged
}

// postLater is like post for what may rest for a moment.
func (j *journal) postLater(add func(*batch)) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	add(j.next)
	if j.rest == nil {
		j.rest = time.AfterFunc(restTime, j.hurry)
	}
	return j.next.acknowledged
}

// hurry lets the next batch be delivered.
func (j *journal) hurry() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.hurryLocked()
}

func (j *journal) hurryLocked() {
	if j.rest != nil {
		j.rest.Stop()
		j.rest = nil
	}
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// take returns what was posted since the last time, for the caller to deliver
// and to close its channel, or nil.
func (j *journal) take() *batch {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.next.Len() == 0 {
		return nil
	}
	j.last, j.next = j.next, newBatch()
	return j.last
}

// flushed waits until all that was posted before has been acknowledged, or
// until ctx ends.
func (j *journal) flushed(ctx context.Context) {
	j.mu.Lock()
	j.hurryLocked()
	b := j.next
	if b.Len() == 0 {
		b = j.last
	}
	j.mu.Unlock()
	select {
	case <-b.acknowledged:
	case <-ctx.Done():
	}
}

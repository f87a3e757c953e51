package caddymodule

import (
	"sync"
	"time"
)

const (
	// retryWindow is the time over which retries are counted.
	retryWindow = 10 * time.Second

	// retryShare is how many retries a provider that fails gets for each first
	// attempt within the window, and retryFloor how many it gets in any case.
	retryShare = 0.2
	retryFloor = 10
)

// A budget bounds how often requests that failed at a provider are sent to it
// again, with another key: one that fails under its load must not get more of
// it. Its zero value has had no requests.
type budget struct {
	slots [10]struct{ first, retries int }
	at    int64 // the number of the newest slot
}

// slot returns the slot of the time now, and forgets those that are too old.
func (b *budget) slot(now time.Time) *struct{ first, retries int } {
	n := int64(len(b.slots))
	at := now.UnixNano() / int64(retryWindow/time.Duration(n))
	for i := max(b.at+1, at-n+1); i <= at; i++ {
		b.slots[i%n] = struct{ first, retries int }{}
	}
	b.at = max(b.at, at)
	return &b.slots[b.at%n]
}

// first counts a first attempt.
func (b *budget) first(now time.Time) { b.slot(now).first++ }

// retry counts a retry and reports true, if there is room for one.
func (b *budget) retry(now time.Time) bool {
	slot := b.slot(now)
	first, retries := 0, 0
	for _, s := range b.slots {
		first, retries = first+s.first, retries+s.retries
	}
	if float64(retries) >= retryFloor+retryShare*float64(first) {
		return false
	}
	slot.retries++
	return true
}

// budgets are those of all providers, by name. The zero value is ready to use.
type budgets struct {
	mu  sync.Mutex
	all map[string]*budget
}

func (b *budgets) first(provider string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ofLocked(provider).first(time.Now())
}

func (b *budgets) retry(provider string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ofLocked(provider).retry(time.Now())
}

func (b *budgets) ofLocked(provider string) *budget {
	one := b.all[provider]
	if one == nil {
		one = new(budget)
		if b.all == nil {
			b.all = make(map[string]*budget)
		}
		b.all[provider] = one
	}
	return one
}

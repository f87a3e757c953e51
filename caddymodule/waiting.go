package caddymodule

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/usherproxy/usher/policy"
)

const (
	// judgeAgain is how often a waiting request is judged anew at least: what
	// another replica has learned, or a policy knows by itself, is not told
	// here.
	judgeAgain = 5 * time.Second

	// judgePause is how long a waiting request is not judged anew after it has
	// been.
	judgePause = 100 * time.Millisecond

	// judgeSpacing is the time between two requests that are judged anew for
	// the same reason, and judgeWithin that until the last of them.
	judgeSpacing = time.Millisecond
	judgeWithin  = time.Second
)

// waiting are the requests that wait, in their order of arrival. A change that
// may concern them wakes them one after the other, the oldest first.
type waiting struct {
	mu  sync.Mutex
	all []*waiter
}

// A waiter is one of them.
type waiter struct {
	arrival         int64
	ranked, skipped []policy.Candidate // as it was last judged
	wake            chan time.Time     // when to judge it anew
}

// join adds a request, which leaves by itself.
func (ws *waiting) join(arrival int64) *waiter {
	w := &waiter{arrival: arrival, wake: make(chan time.Time, 1)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	i, _ := slices.BinarySearchFunc(ws.all, w, func(a, b *waiter) int { return cmp.Compare(a.arrival, b.arrival) })
	ws.all = slices.Insert(ws.all, i, w)
	return w
}

func (ws *waiting) leave(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if i := slices.Index(ws.all, w); i >= 0 {
		ws.all = slices.Delete(ws.all, i, i+1)
	}
}

// judged notes how a request was judged.
func (ws *waiting) judged(w *waiter, ranked, skipped []policy.Candidate) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.ranked, w.skipped = ranked, skipped
}

// toldWithin is how long a change waits at most for policies to know of it.
const toldWithin = time.Second

// after wakes those whom the end of an attempt concerns as soon as the policies
// know of it, each of which says so by closing a channel. It does not block.
func (ws *waiting) after(told []<-chan struct{}, res *policy.AttemptResult) {
	if !ws.concerned(res) {
		return // as almost always
	}
	go func() { // ends soon
		timeout := time.NewTimer(toldWithin)
		defer timeout.Stop()
		for _, ack := range told {
			select {
			case <-ack:
			case <-timeout.C:
				timeout.Reset(0) // nor for the others
			}
		}
		ws.changed(res)
	}()
}

// concerned reports whether any request that waits may be judged otherwise
// after an attempt that ended so.
func (ws *waiting) concerned(res *policy.AttemptResult) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.ContainsFunc(ws.all, func(w *waiter) bool { return w.concerns(res) })
}

// changed wakes those whom the end of an attempt concerns, or all if it is nil.
func (ws *waiting) changed(res *policy.AttemptResult) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	due := time.Now()
	last := due.Add(judgeWithin)
	for _, w := range ws.all {
		if res != nil && !w.concerns(res) {
			continue
		}
		select {
		case w.wake <- due:
		default: // it is to be woken already
		}
		if due.Before(last) {
			due = due.Add(judgeSpacing)
		}
	}
}

// concerns reports whether the end of an attempt may change how w is judged:
// a success for what was skipped, anything else for what was ranked.
func (w *waiter) concerns(res *policy.AttemptResult) bool {
	candidates := w.ranked
	switch d := res.Disposition; {
	case d == policy.OK:
		candidates = w.skipped
	case d.Failure(), d == policy.RateLimited, d == policy.QuotaExhausted, d == policy.AuthFailed:
	default:
		return false
	}
	return slices.ContainsFunc(candidates, func(c policy.Candidate) bool {
		return keyOf(c) == keyOf(res.Candidate) || accountOf(c) == accountOf(res.Candidate)
	})
}

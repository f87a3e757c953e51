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
// may concern them wakes them one after the other, the oldest first. Its zero
// value has none.
type waiting struct {
	mu              sync.Mutex
	all             []*waiter
	ranked, skipped subjects // of all, so that most changes are known to concern nobody
}

// A waiter is one of them.
type waiter struct {
	arrival         int64
	ranked, skipped []policy.Candidate // as it was last judged; read only
	wake            chan time.Time     // when to judge it anew
}

// subjects counts the candidates of requests by key and by account.
type subjects struct {
	keys     map[keyName]int
	accounts map[string]int
}

// add counts each of the candidates n times more.
func (s *subjects) add(candidates []policy.Candidate, n int) {
	if s.keys == nil {
		s.keys, s.accounts = make(map[keyName]int), make(map[string]int)
	}
	for i := range candidates {
		key, account := keyNameOf(candidates[i]), accountOf(candidates[i])
		if s.keys[key] += n; s.keys[key] == 0 {
			delete(s.keys, key)
		}
		if s.accounts[account] += n; s.accounts[account] == 0 {
			delete(s.accounts, account)
		}
	}
}

// has reports whether any of them is of the key or the account of c.
func (s *subjects) has(c policy.Candidate) bool {
	return s.keys[keyNameOf(c)] > 0 || s.accounts[accountOf(c)] > 0
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
		ws.judgedLocked(w, nil, nil)
	}
}

// judged notes how a request that has joined was judged. The candidates must
// not be changed any more.
func (ws *waiting) judged(w *waiter, ranked, skipped []policy.Candidate) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.judgedLocked(w, ranked, skipped)
}

func (ws *waiting) judgedLocked(w *waiter, ranked, skipped []policy.Candidate) {
	ws.ranked.add(w.ranked, -1)
	ws.skipped.add(w.skipped, -1)
	w.ranked, w.skipped = ranked, skipped
	ws.ranked.add(ranked, 1)
	ws.skipped.add(skipped, 1)
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
	toSkipped, toRanked := tells(res.Disposition)
	return toSkipped && ws.skipped.has(res.Candidate) || toRanked && ws.ranked.has(res.Candidate)
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

// tells reports whom the end of an attempt tells something new: a success those
// that skipped the candidate, and what speaks against it those that ranked it.
func tells(d policy.Disposition) (toSkipped, toRanked bool) {
	against := d.Failure() || d == policy.RateLimited || d == policy.QuotaExhausted || d == policy.AuthFailed
	return d == policy.OK, against
}

// concerns reports whether the end of an attempt may change how w is judged.
func (w *waiter) concerns(res *policy.AttemptResult) bool {
	key, account := keyNameOf(res.Candidate), accountOf(res.Candidate)
	same := func(c policy.Candidate) bool { return keyNameOf(c) == key || accountOf(c) == account }
	toSkipped, toRanked := tells(res.Disposition)
	return toSkipped && slices.ContainsFunc(w.skipped, same) || toRanked && slices.ContainsFunc(w.ranked, same)
}

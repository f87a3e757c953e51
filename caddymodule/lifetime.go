package caddymodule

import (
	"context"
	"sync"
	"time"
)

// A lifetime counts the users of something that may end only when nobody uses
// it. Its zero value has no users.
type lifetime struct {
	mu    sync.Mutex
	users int
	last  time.Time // when the last user left
	ended bool
	idle  chan struct{} // closed when users is 0, if somebody waits
}

// linger is how long something is kept after its last use on a reload: a
// client may send one more request on a connection of the old configuration.
const linger = 2 * time.Second

// enter counts a user. It reports false if the end has come; else the user
// calls leave.
func (l *lifetime) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.users++
	return true
}

// leave counts a user less.
func (l *lifetime) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users--
	if l.users > 0 {
		return
	}
	l.last = time.Now()
	if l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// end waits until there has been no user for the given time, counted from its
// call at the earliest, and then lets nobody enter any more. When ctx ends it
// waits no longer.
func (l *lifetime) end(ctx context.Context, quiet time.Duration) {
	began := time.Now()
	for {
		l.mu.Lock()
		wait := quiet - time.Since(later(began, l.last))
		if l.users == 0 && wait <= 0 || ctx.Err() != nil {
			l.ended = true
			l.mu.Unlock()
			return
		}
		var idle chan struct{} // nil blocks
		if l.users > 0 {
			if l.idle == nil {
				l.idle = make(chan struct{})
			}
			idle, wait = l.idle, forever
		}
		l.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-idle:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// forever is longer than any wait.
const forever = 1<<63 - 1

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

package caddymodule

import (
	"sync"
	"time"
)

// A lifetime counts the users of something that may end only when nobody uses
// it. Its zero value has no users.
type lifetime struct {
	mu    sync.Mutex
	users int
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
	if l.users == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// end waits until there has been no user for the given time, and then lets
// nobody enter any more.
func (l *lifetime) end(quiet time.Duration) {
	for {
		l.wait()
		time.Sleep(quiet)
		l.mu.Lock()
		if l.users == 0 {
			l.ended = true
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}

// wait blocks until there is no user.
func (l *lifetime) wait() {
	l.mu.Lock()
	if l.users == 0 {
		l.mu.Unlock()
		return
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	<-idle
}

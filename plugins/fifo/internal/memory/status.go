package memory

import (
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
)

// Status returns how the scopes are, and how many run and wait.
func (s *Store) Status() (scopes []queue.ScopeStatus, running, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running, waiting = s.queue.Counts()
	return s.queue.Statuses(time.Now()), running, waiting
}

package memory

import (
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
)

// tellEvery is how often positions are told at most.
const tellEvery = time.Second

// moved notes that positions may have changed.
func (s *Store) moved() {
	if len(s.waits) > 0 && !s.telling {
		s.telling = true
		s.tell.Reset(tellEvery)
	}
}

// tellPositions tells those whose position is worth telling. So the number of
// times that a request is told grows with the logarithm of its first position.
func (s *Store) tellPositions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.telling = false
	s.queue.Positions(func(t *queue.Ticket, position int) {
		w := s.waits[t]
		if w == nil || w.told == 0 || !worthTelling(w.told, position) {
			return
		}
		select {
		case <-w.move: // was not told yet and is outdated
		default:
		}
		w.told = position
		w.move <- position
	})
}

// worthTelling reports whether a position has changed by a tenth, or at all
// where it is below ten.
func worthTelling(told, position int) bool {
	return 10*max(told-position, position-told) >= max(told, 10)
}

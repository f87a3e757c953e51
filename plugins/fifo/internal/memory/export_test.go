package memory

import "time"

// Waits returns how many waits the store knows of.
func (s *Store) Waits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waits)
}

// What tests need to know of the store's times.
const (
	AttachWithin time.Duration = attachWithin
	TellEvery    time.Duration = tellEvery
)

package postgres

// State returns what the store has read, and what that has led to. It makes the
// store read what is new.
func (s *Store) State() (seq int64, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.kick()
	if s.machine == nil {
		return 0, ""
	}
	data, err := s.machine.save()
	if err != nil {
		return s.machine.seq, err.Error()
	}
	return s.machine.seq, string(data)
}

// Lease is how long a replica is believed to live.
const Lease = lease

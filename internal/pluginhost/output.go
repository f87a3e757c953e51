package pluginhost

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
)

// rememberedBytes is how much of an output is kept for the error of a process
// that does not serve.
const rememberedBytes = 2048

// stdout is the standard output of a process. go-plugin reads its first line,
// the handshake. The rest is logged: go-plugin would drop it, and stop reading
// at a long line, so that the process would hang.
type stdout struct {
	file *os.File
	rest *lines

	mu      sync.Mutex
	first   []byte // the beginning of the first line
	greeted bool   // the first line is complete
}

// Read returns the first line in pieces, and then logs until the end.
func (s *stdout) Read(p []byte) (int, error) {
	for {
		n, err := readPipe(s.file, p)
		if line := s.greeting(p[:n]); line > 0 {
			_, _ = s.rest.Write(p[line:n]) // never fails
			return line, err
		}
		_, _ = s.rest.Write(p[:n])
		if err != nil {
			s.rest.flush()
			return 0, err
		}
	}
}

// greeting returns how much of p belongs to the first line.
func (s *stdout) greeting(p []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.greeted {
		return 0
	}
	line, _, ended := bytes.Cut(p, newline)
	s.first = append(s.first, line[:min(len(line), rememberedBytes-len(s.first))]...)
	if s.greeted = ended; ended {
		return len(line) + 1
	}
	return len(line)
}

// Close closes the host's end.
func (s *stdout) Close() error { return s.file.Close() }

// said returns the beginning of the first line.
func (s *stdout) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.first)
}

// stderr is the standard error of a process: its log. go-plugin sees nothing
// of it, for a line that it does not expect makes it panic.
type stderr struct {
	file *os.File
	all  *lines

	mu   sync.Mutex
	last []byte // the end of what was read
}

// Read logs until the end and returns nothing.
func (s *stderr) Read(p []byte) (int, error) {
	for {
		n, err := readPipe(s.file, p)
		s.remember(p[:n])
		_, _ = s.all.Write(p[:n]) // never fails
		if err != nil {
			s.all.flush()
			return 0, err
		}
	}
}

func (s *stderr) remember(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = append(s.last, p...)
	s.last = s.last[max(0, len(s.last)-rememberedBytes):]
}

// Close closes the host's end.
func (s *stderr) Close() error { return s.file.Close() }

// lastWords returns the end of what was read.
func (s *stderr) lastWords() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.last)
}

// readPipe reads from a pipe until its writers, or the time that they have
// after the end of their process, have ended.
func readPipe(f *os.File, p []byte) (int, error) {
	n, err := f.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	return n, err
}

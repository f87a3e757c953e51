package pluginhost

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// linesPerSecond is how many lines a plugin may log in a second. What it logs
// beyond that is counted and dropped. Tests raise it.
var linesPerSecond = 1000

// A logLimit drops what a plugin logs in excess, and logs how much that was. It
// is safe for concurrent use.
type logLimit struct {
	log       *zap.Logger
	now       func() time.Time
	perSecond int

	mu      sync.Mutex // guards what follows
	second  time.Time  // when the present second began
	lines   int        // in the present second
	dropped int        // and not told yet
}

// allow reports whether one more line may be logged.
func (l *logLimit) allow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.second) >= time.Second {
		l.tellLocked()
		l.second, l.lines = now, 0
	}
	l.lines++
	if l.lines > l.perSecond {
		l.dropped++
		return false
	}
	return true
}

// flush tells what was dropped, at the end of a process.
func (l *logLimit) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tellLocked()
}

func (l *logLimit) tellLocked() {
	if l.dropped > 0 {
		l.log.Warn("plugin logs too much", zap.Int("lines_dropped", l.dropped), zap.Int("lines_per_second", l.perSecond))
		l.dropped = 0
	}
}

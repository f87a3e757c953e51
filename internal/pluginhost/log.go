package pluginhost

import (
	"bytes"
	"io"
	"sync"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newHclog returns a logger for go-plugin that writes to log: what a plugin
// logs, and what go-plugin says of it.
func newHclog(log *zap.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Trace})
	l.RegisterSink(sink{log})
	return l
}

// sink passes log lines on to zap.
type sink struct{ log *zap.Logger }

// maxLogField is the size at which a message or a field is cut.
const maxLogField = 4096

// Accept writes one line.
func (s sink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	entry := s.log.Check(zapLevel(level), cut(msg))
	if entry == nil {
		return
	}
	fields := make([]zapcore.Field, 0, len(args)/2)
	for i := 0; i+1 < len(args); i += 2 {
		name, ok := args[i].(string)
		if !ok || name == "timestamp" {
			continue // our own line has a time
		}
		if text, ok := args[i+1].(string); ok {
			fields = append(fields, zap.String(name, cut(text)))
		} else {
			fields = append(fields, zap.Any(name, args[i+1]))
		}
	}
	entry.Write(fields...)
}

func cut(s string) string {
	if len(s) > maxLogField {
		return s[:maxLogField] + "..."
	}
	return s
}

func zapLevel(l hclog.Level) zapcore.Level {
	switch l {
	case hclog.Error:
		return zapcore.ErrorLevel
	case hclog.Warn:
		return zapcore.WarnLevel
	case hclog.Info:
		return zapcore.InfoLevel
	}
	return zapcore.DebugLevel
}

// lineLogger logs what a plugin prints to its standard output after the
// handshake, a line each.
type lineLogger struct {
	log *zap.Logger

	mu      sync.Mutex
	partial []byte
}

func (l *lineLogger) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, p...)
	for {
		line, rest, ok := bytes.Cut(l.partial, []byte("\n"))
		if !ok {
			break
		}
		l.log.Info(cut(string(line)))
		l.partial = rest
	}
	if len(l.partial) > maxLogField {
		l.log.Info(cut(string(l.partial)))
		l.partial = nil
	}
	return len(p), nil
}

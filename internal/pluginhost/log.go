package pluginhost

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// maxLine is how much of a line is looked at; the rest is dropped.
	maxLine = 64 << 10

	// maxText is the size at which a message or a field is cut.
	maxText = 8 << 10
)

var newline = []byte("\n")

// lines is a writer that logs each line. It is safe for concurrent use.
type lines struct {
	log   *zap.Logger
	limit *logLimit // of the process

	mu    sync.Mutex
	line  []byte // the beginning of the line that is not complete
	dying bool   // a Go program has begun to say why it crashes
}

// Write logs the lines that end in p. It never fails.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; ; {
		part, after, ended := bytes.Cut(rest, newline)
		l.line = append(l.line, part[:min(len(part), maxLine-len(l.line))]...)
		if !ended {
			return len(p), nil
		}
		l.flushLocked()
		rest = after
	}
}

// flush logs a line that will not be completed.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked()
}

func (l *lines) flushLocked() {
	line := bytes.TrimSpace(l.line)
	l.line = l.line[:0]
	if len(line) == 0 {
		return
	}
	level, message, fields, ok := parseLine(line)
	if !ok {
		level, message = zapcore.InfoLevel, string(line)
		l.dying = l.dying || strings.HasPrefix(message, "panic: ") || strings.HasPrefix(message, "fatal error: ")
		if l.dying {
			level = zapcore.ErrorLevel
		}
	}
	if entry := l.log.Check(level, cut(message)); entry != nil && (l.dying || l.limit.allow()) {
		entry.Write(fields...)
	}
}

// parseLine reads a line of JSON in the form of hashicorp/go-hclog, in which
// the SDK logs.
func parseLine(line []byte) (level zapcore.Level, message string, fields []zap.Field, ok bool) {
	var object map[string]any
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if line[0] != '{' || dec.Decode(&object) != nil {
		return 0, "", nil, false
	}
	if message, ok = object["@message"].(string); !ok {
		return 0, "", nil, false
	}
	word, _ := object["@level"].(string)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		switch v := object[name].(type) {
		case string:
			if !strings.HasPrefix(name, "@") { // hclog's own
				fields = append(fields, zap.String(name, cut(v)))
			}
		default:
			fields = append(fields, zap.Reflect(name, v))
		}
	}
	return zapLevel(word), message, fields, true
}

// zapLevel returns the level that hclog calls by a word.
func zapLevel(word string) zapcore.Level {
	switch word {
	case "error":
		return zapcore.ErrorLevel
	case "warn":
		return zapcore.WarnLevel
	case "info":
		return zapcore.InfoLevel
	}
	return zapcore.DebugLevel
}

func cut(s string) string {
	if len(s) > maxText {
		return strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	return s
}

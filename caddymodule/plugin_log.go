package caddymodule

import (
	"slices"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// pluginLog returns the log of a plugin, whose process may outlive the
// configuration that started it: each line goes where the logs of the running
// configuration go.
func pluginLog(name string) *zap.Logger {
	return zap.New(currentLog{}).Named("usher.plugin." + name)
}

// currentLog writes to Caddy's default log at the time of each line.
type currentLog struct{ fields []zapcore.Field }

var _ zapcore.Core = currentLog{}

// Enabled reports whether lines of the level are written.
func (currentLog) Enabled(level zapcore.Level) bool { return caddy.Log().Core().Enabled(level) }

// With returns a log that adds fields to each line.
func (l currentLog) With(fields []zapcore.Field) zapcore.Core {
	return currentLog{slices.Concat(l.fields, fields)}
}

// Check adds l to those who write the line, if its level is enabled.
func (l currentLog) Check(line zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(line.Level) {
		return checked.AddCore(line, l)
	}
	return checked
}

// Write writes a line.
func (l currentLog) Write(line zapcore.Entry, fields []zapcore.Field) error {
	if checked := caddy.Log().Core().Check(line, nil); checked != nil {
		checked.Write(slices.Concat(l.fields, fields)...)
	}
	return nil
}

// Sync has nothing to do: each line is passed on at once.
func (currentLog) Sync() error { return nil }

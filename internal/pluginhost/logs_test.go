package pluginhost_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// logs are what a plugin and its host logged.
type logs struct {
	*observer.ObservedLogs
	logger *zap.Logger
}

func newLogs(t testing.TB) *logs {
	core, observed := observer.New(zapcore.DebugLevel)
	t.Cleanup(func() {
		if t.Failed() {
			for _, e := range observed.All() {
				t.Logf("%s %s %v", e.Level, e.Message, e.ContextMap())
			}
		}
	})
	return &logs{observed, zap.New(core)}
}

// has waits for lines with a message and fields, and returns them.
func (l *logs) has(t testing.TB, n int, level zapcore.Level, message string, fields map[string]any) []observer.LoggedEntry {
	t.Helper()
	var found []observer.LoggedEntry
	eventually(t, func() error {
		found = l.find(message, fields)
		if len(found) < n {
			return fmt.Errorf("%d lines %q with %v, want %d", len(found), message, fields, n)
		}
		return nil
	})
	for _, e := range found {
		if e.Level != level {
			t.Errorf("%q was logged at level %s, want %s", message, e.Level, level)
		}
	}
	return found
}

// find returns the lines with a message and fields.
func (l *logs) find(message string, fields map[string]any) []observer.LoggedEntry {
	return slices.DeleteFunc(l.All(), func(e observer.LoggedEntry) bool {
		got := e.ContextMap()
		for name, want := range fields {
			if fmt.Sprint(got[name]) != fmt.Sprint(want) {
				return true
			}
		}
		return e.Message != message
	})
}

// above returns the lines above a level.
func (l *logs) above(level zapcore.Level) []string {
	var found []string
	for _, e := range l.All() {
		if e.Level > level {
			found = append(found, fmt.Sprint(e.Message, slices.Sorted(maps.Keys(e.ContextMap()))))
		}
	}
	return found
}

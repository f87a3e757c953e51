package sdk_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/usherproxy/usher/sdk"
)

func TestLogLinesAreThoseOfHclog(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		log  func(*slog.Logger)
		want map[string]any // without the time
	}{
		"debug": {func(l *slog.Logger) { l.Debug("m") }, map[string]any{"@level": "debug", "@message": "m"}},
		"info":  {func(l *slog.Logger) { l.Info("m") }, map[string]any{"@level": "info", "@message": "m"}},
		"warn":  {func(l *slog.Logger) { l.Warn("m") }, map[string]any{"@level": "warn", "@message": "m"}},
		"error": {func(l *slog.Logger) { l.Error("m", "error", errors.New("e")) }, map[string]any{
			"@level": "error", "@message": "m", "error": "e",
		}},
		"fields": {func(l *slog.Logger) { l.With("a", 1).WithGroup("g").Info("m", "time", "t", "level", "l", "b", true) }, map[string]any{
			"@level": "info", "@message": "m", "a": 1.0, "g": map[string]any{"time": "t", "level": "l", "b": true},
		}},
		"fields with names of our own": {func(l *slog.Logger) { l.Info("m", "time", "3s", "level", "gold", "@message", 1, "@@timestamp", 3) }, map[string]any{
			"@level": "info", "@message": "m", "time": "3s", "level": "gold", "message": 1.0, "timestamp": 3.0,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			c.log(sdk.NewLogger(&out))
			got := map[string]any{}
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("%s: %v", out.Bytes(), err)
			}
			stamp, _ := got["@timestamp"].(string)
			if at, err := time.Parse(hclog.TimeFormatJSON, stamp); err != nil || time.Since(at).Abs() > time.Hour {
				t.Errorf("timestamp %q: %v, %v", stamp, at, err)
			}
			delete(got, "@timestamp")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", out.Bytes(), diff)
			}
		})
	}
}

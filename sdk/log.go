package sdk

import (
	"io"
	"log/slog"
	"time"
)

// newLogger returns a logger whose lines the host reads back with their level,
// time and fields: JSON in the form of hashicorp/go-hclog, one object a line.
func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: slog.LevelDebug, // the host filters
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return a
			}
			switch a.Key {
			case slog.TimeKey:
				return slog.String("@timestamp", a.Value.Time().Format(time.RFC3339Nano))
			case slog.LevelKey:
				level, _ := a.Value.Any().(slog.Level)
				return slog.String("@level", hclogLevel(level))
			case slog.MessageKey:
				return slog.String("@message", a.Value.String())
			}
			return a
		},
	}))
}

func hclogLevel(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "error"
	case l >= slog.LevelWarn:
		return "warn"
	case l >= slog.LevelInfo:
		return "info"
	}
	return "debug"
}

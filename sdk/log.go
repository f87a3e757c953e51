package sdk

import (
	"io"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
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
			return hclogAttr(a)
		},
	}))
}

// hclogAttr renames what slog adds to each line. A field of a policy may have
// the same name as one of slog's, or of hclog's, which the host expects to be
// strings.
func hclogAttr(a slog.Attr) slog.Attr {
	level, isLevel := a.Value.Any().(slog.Level)
	switch {
	case a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime:
		return slog.String("@timestamp", a.Value.Time().Format(hclog.TimeFormatJSON))
	case a.Key == slog.LevelKey && isLevel:
		return slog.String("@level", hclogLevel(level))
	case a.Key == slog.MessageKey:
		return slog.String("@message", a.Value.String())
	}
	a.Key = strings.TrimLeft(a.Key, "@")
	return a
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

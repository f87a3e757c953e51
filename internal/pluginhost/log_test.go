package pluginhost_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/usherproxy/usher/internal/pluginhost"
)

func TestLogLinesOfAPlugin(t *testing.T) {
	t.Parallel()
	type entry struct {
		Level   zapcore.Level
		Message string
		Fields  map[string]any
	}
	long := strings.Repeat("é", 100_000)
	for _, tc := range []struct {
		name   string
		pieces []string
		want   []entry
	}{
		{"text", []string{"one\ntw", "o\r\n", "\n", "three"}, []entry{
			{zap.InfoLevel, "one", nil}, {zap.InfoLevel, "two", nil}, {zap.InfoLevel, "three", nil},
		}},
		{"hclog", []string{
			`{"@level":"warn","@message":"low","@timestamp":"2026-01-02T15:04:05.000000Z","@module":"x","n":12345678901234567,"s":"t","m":{"a":[1]}}` + "\n",
		}, []entry{{zap.WarnLevel, "low", map[string]any{"n": "12345678901234567", "s": "t", "m": map[string]any{"a": []any{"1"}}}}}},
		{"levels", []string{`{"@level":"error","@message":"a"}
{"@level":"info","@message":"b"}
{"@level":"debug","@message":"c"}
{"@level":"trace","@message":"d"}
{"@message":"e"}
`}, []entry{
			{zap.ErrorLevel, "a", nil}, {zap.InfoLevel, "b", nil}, {zap.DebugLevel, "c", nil}, {zap.DebugLevel, "d", nil}, {zap.DebugLevel, "e", nil},
		}},
		{"other JSON", []string{`{"msg":"x"}` + "\n" + `{"@message":1,"@level":2}` + "\n" + `{"` + "\n"}, []entry{
			{zap.InfoLevel, `{"msg":"x"}`, nil}, {zap.InfoLevel, `{"@message":1,"@level":2}`, nil}, {zap.InfoLevel, `{"`, nil},
		}},
		{"panic", []string{"before\npanic: oh\n\ngoroutine 1 [running]:\nmain.main()\n"}, []entry{
			{zap.InfoLevel, "before", nil}, {zap.ErrorLevel, "panic: oh", nil}, {zap.ErrorLevel, "goroutine 1 [running]:", nil}, {zap.ErrorLevel, "main.main()", nil},
		}},
		{"fatal error", []string{"fatal error: all goroutines are asleep\n"}, []entry{{zap.ErrorLevel, "fatal error: all goroutines are asleep", nil}}},
		{"long line", []string{long, long + "\nnext\n"}, []entry{
			{zap.InfoLevel, long[:8<<10] + "...", nil}, {zap.InfoLevel, "next", nil},
		}},
		{"long field", []string{`{"@message":"m","f":"x` + long[:20_000] + `"}`}, []entry{
			{zap.DebugLevel, "m", map[string]any{"f": "x" + long[:8<<10-2] + "..."}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			log := newLogs(t)
			var pieces [][]byte
			for _, p := range tc.pieces {
				pieces = append(pieces, []byte(p))
			}
			pluginhost.LogOutput(log.logger, pieces...)
			var got []entry
			for _, e := range log.All() {
				fields := numbersToText(e.ContextMap())
				if len(fields) == 0 {
					fields = nil
				}
				got = append(got, entry{e.Level, e.Message, fields})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// numbersToText turns JSON numbers into strings.
func numbersToText(fields map[string]any) map[string]any {
	var text func(any) any
	text = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			return numbersToText(v)
		case []any:
			for i := range v {
				v[i] = text(v[i])
			}
			return v
		case interface{ Int64() (int64, error) }: // json.Number
			return v.(interface{ String() string }).String()
		}
		return v
	}
	for name, v := range fields {
		fields[name] = text(v)
	}
	return fields
}

func TestLogOfTheSDK(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"name": "mine"}`)
	built := w.log.has(t, 1, zap.InfoLevel, "built", map[string]any{"policy": "mine"})
	if diff := cmp.Diff(map[string]any{"policy": "mine", "details": map[string]any{"size": "3"}}, numbersToText(built[0].ContextMap())); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestPrintsAreLogged_B106(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"at": "select", "do": "print"}`)
	w.run(t)
	w.log.has(t, 1, zap.InfoLevel, "printed to standard output", nil)
	closePlugin(w.Plugin)
	w.log.has(t, 1, zap.InfoLevel, "printed in part", nil)
}

func TestPanicIsLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"at": "select", "do": "panic", "once": "`+t.TempDir()+`/once"}`)
	w.run(t)
	w.restarted(t, 1)
	w.log.has(t, 1, zap.ErrorLevel, "panic: a goroutine of the policy panicked", nil)
	died := w.log.has(t, 1, zap.ErrorLevel, "plugin died", nil)
	if how := died[0].ContextMap()["how"]; how != "it ended with exit status 2" {
		t.Errorf("logged %q", how)
	}
}

// Invariant 8.
func TestOutputThatIsHardToRead_B113(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"at": "select", "do": "spew"}`)
	w.run(t)
	w.log.has(t, 2, zap.InfoLevel, "after the long line", nil)
	w.log.has(t, 2, zap.InfoLevel, `{"@message":1,"@level":2,"@timestamp":3}`, nil)
	w.log.has(t, 2, zap.InfoLevel, strings.Repeat("x", 8<<10)+"...", nil)
	if w.Restarts() > 0 {
		t.Errorf("restarted %d times", w.Restarts())
	}
}

func FuzzLogOutput(f *testing.F) {
	f.Add([]byte(`{"@level":"info","@message":"m","a":1}`+"\n"), 7)
	f.Add([]byte("panic: x\n\n"), 0)
	f.Add([]byte(`{"@message":{}}`), 1)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		at = max(0, min(at, len(text)))
		whole, parts := newLogs(t), newLogs(t)
		pluginhost.LogOutput(whole.logger, text)
		pluginhost.LogOutput(parts.logger, text[:at], text[at:])
		if whole.Len() != parts.Len() {
			t.Errorf("%d lines, and %d if cut at %d", whole.Len(), parts.Len(), at)
		}
	})
}

func TestAPluginThatLogsTooMuchIsCutShort_B113(t *testing.T) {
	t.Parallel()
	log := newLogs(t)
	many := []byte(strings.Repeat("again\n", 3000))
	pluginhost.LogOutput(log.logger, many)
	told := log.has(t, 1, zap.WarnLevel, "plugin logs too much", nil)
	dropped := 0
	for _, e := range told {
		dropped += int(e.ContextMap()["lines_dropped"].(int64))
	}
	if written := len(log.find("again", nil)); written < 1000 || written == 3000 || written+dropped != 3000 {
		t.Errorf("%d lines were written and %d dropped, of 3000", written, dropped)
	}
}

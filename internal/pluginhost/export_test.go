package pluginhost

import (
	"context"
	"os"
	"time"

	"go.uber.org/zap"
)

// StartImpatient is like [Start] for tests that do not want to wait.
func StartImpatient(ctx context.Context, spec Spec, log *zap.Logger) (*Plugin, error) {
	return start(ctx, spec, log, impatient)
}

// StartStern is like [StartImpatient], and takes a process that does not answer for
// hung as soon as Start does.
func StartStern(ctx context.Context, spec Spec, log *zap.Logger) (*Plugin, error) {
	t := impatient
	t.probeTimeout, t.tellTimeout = 2*time.Second, 2*time.Second
	return start(ctx, spec, log, t)
}

// StartUnforgiving is like [StartImpatient], but takes no process for healthy
// because it has lived for a while.
func StartUnforgiving(ctx context.Context, spec Spec, log *zap.Logger) (*Plugin, error) {
	t := impatient
	t.backoffMin, t.backoffMax, t.healthyAfter = 20*time.Millisecond, time.Minute, time.Hour
	return start(ctx, spec, log, t)
}

var impatient = timing{
	probeEvery:   50 * time.Millisecond,
	probeTimeout: 20 * time.Second,
	backoffMin:   5 * time.Millisecond,
	backoffMax:   50 * time.Millisecond,
	healthyAfter: time.Second,
	setUpTimeout: time.Minute,
	tellTimeout:  20 * time.Second,
	tellAgain:    50 * time.Millisecond,
	killAfter:    2500 * time.Millisecond,
}

// KillEnded starts a process, waits for its end, gives its number to another
// one, as the system may by then, and kills it.
func KillEnded(spec Spec, log *zap.Logger, other *os.Process) error {
	r := newProcess(spec, log).runner
	if err := r.Start(context.Background()); err != nil {
		return err
	}
	defer r.free()
	<-r.exited
	r.cmd.Process = other
	return r.Kill(context.Background())
}

func init() { linesPerSecond = 1 << 30 } // for tests that count lines

const linesOfLogOutput = 1000

// LogOutput logs what a plugin writes, given in pieces.
func LogOutput(log *zap.Logger, pieces ...[]byte) {
	l := &lines{log: log, limit: &logLimit{log: log, now: time.Now, perSecond: linesOfLogOutput}}
	for _, p := range pieces {
		_, _ = l.Write(p)
	}
	l.flush()
	l.limit.flush()
}

// Call makes a call of which f notes the answer.
func (p *Plugin) Call(ctx context.Context, f func()) error {
	return p.call(ctx, func(*process) error {
		f()
		return nil
	})
}

// Flushed waits until nothing is left of what was posted before.
func (p *Plugin) Flushed(ctx context.Context) { p.journal.flushed(ctx) }

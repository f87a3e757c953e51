package pluginhost

import (
	"context"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/sdk/host"
)

// A Single is one process of a plugin that nobody watches or restarts, for
// tools that look at a plugin. Its owner calls End.
type Single struct{ process *process }

// StartSingle starts a process and returns when it serves. Its log goes to log.
func StartSingle(ctx context.Context, spec Spec, log *zap.Logger) (*Single, error) {
	p, err := startProcess(ctx, spec, log)
	if err != nil {
		return nil, err
	}
	return &Single{p}, nil
}

// Client calls the process.
func (s *Single) Client() *host.Client { return s.process.Client }

// Info is what the process said of itself when it was started.
func (s *Single) Info() host.Info { return s.process.info }

// Signal sends a signal to the process.
func (s *Single) Signal(sig os.Signal) error { return s.process.runner.cmd.Process.Signal(sig) }

// CutLifeline closes the standard input of the process, as the end of the host
// does.
func (s *Single) CutLifeline() { _ = s.process.runner.lifeline.Close() } // End closes it again

// Ended reports whether the process ends by itself within d.
func (s *Single) Ended(d time.Duration) bool { return s.process.runner.hasExited(d) }

// End tells the process to end, and kills it after patience. It reports
// whether the process ended by itself.
func (s *Single) End(patience time.Duration) bool {
	s.process.end(patience)
	return !s.process.runner.wasKilled()
}

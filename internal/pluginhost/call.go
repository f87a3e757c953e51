package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usherproxy/usher/sdk/host"
)

// errStopped is the error of calls to a plugin that was closed.
var errStopped = errors.New("the plugin was stopped")

// call makes a call that may be repeated, on as many processes as it takes.
//
// What f notes of an answer, it has noted before the next process is set up: a
// lease that one process gave is known to the next, and one whose release it
// acknowledged is not.
func (p *Plugin) call(ctx context.Context, f func(*process) error) error {
	return p.repeat(ctx, false, f)
}

// ask is call for a question that nobody has to wait for: it fails while the
// breaker is open.
func (p *Plugin) ask(ctx context.Context, f func(*process) error) error {
	return p.repeat(ctx, true, f)
}

func (p *Plugin) repeat(ctx context.Context, breaks bool, f func(*process) error) error {
	reattached := false
	for {
		process, err := p.enter(ctx, breaks)
		if err != nil {
			return err
		}
		err = f(process)
		process.calls.Done()
		switch {
		case host.TimedOut(err):
			p.suspect()
			awaitEnd(ctx)
			if p.spec.Patient || ctx.Err() != nil || process.Ping(ctx) == nil {
				return err
			} // else who supervises has ended it
		case p.spec.Patient && !reattached && (host.Unknown(err) || host.Unavailable(err)):
			// Who debugs it has started it again behind its socket, so that it
			// knows nothing: the next one that stands in for it tells it all.
			reattached = true
			_ = process.runner.kill()
			p.lose(process)
			continue
		case !unanswered(err):
			return err
		}
		if ctx.Err() != nil || p.alive(ctx, process) {
			return err
		}
	}
}

// suspect lets who supervises the process look whether it hangs.
func (p *Plugin) suspect() {
	select {
	case p.suspicions <- struct{}{}:
	default: // it is about to
	}
}

// awaitEnd lets ctx end if it is about to, so that its owner sees why a call has
// failed: the process may notice a deadline a moment before ctx does.
func awaitEnd(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > endNotice {
		return
	}
	<-ctx.Done()
}

// enter returns the process that serves, and waits for it while it is being
// restarted; but if breaks is set, not while the breaker is open. The caller
// ends the call with calls.Done.
func (p *Plugin) enter(ctx context.Context, breaks bool) (*process, error) {
	for {
		p.mu.Lock()
		process, outage := p.process, p.outage
		if process != nil {
			process.calls.Add(1)
		}
		p.mu.Unlock()
		if process != nil {
			return process, nil
		}
		var broken <-chan struct{}
		if breaks {
			broken = outage.broken
		}
		select {
		case <-outage.over:
		case <-broken:
			return nil, p.brokenError(outage)
		case <-p.ctx.Done():
			return nil, errStopped
		case <-ctx.Done():
			return nil, fmt.Errorf("the plugin %s is being restarted: %w", p.spec.Name, ctx.Err())
		}
	}
}

// unanswered reports whether err says that the connection to the process broke
// or that it was closed.
func unanswered(err error) bool {
	return host.Unavailable(err) || status.Code(err) == codes.Canceled
}

// alive reports whether a process that did not answer a call lives: then it
// was the plugin itself that said so. If it does not, alive makes sure that it
// is dead and takes it out of service.
func (p *Plugin) alive(ctx context.Context, process *process) bool {
	if process.inline() {
		return true
	}
	if !process.runner.hasExited(endNotice) {
		if !process.broken() && (p.probe(ctx, process) == nil || ctx.Err() != nil) {
			return true
		}
		_ = process.runner.kill()
	}
	p.lose(process)
	return false
}

// endNotice is how much later than elsewhere the end of a process, which has
// broken its connections, or of a context may be noticed here.
const endNotice = 100 * time.Millisecond

// lose takes a process out of service.
func (p *Plugin) lose(dead *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == dead {
		p.process, p.outage = nil, newOutage()
	}
}

// serve puts a process into service.
func (p *Plugin) serve(next *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.outage.over)
	p.process, p.outage, p.missed = next, nil, false
}

// deadly is how many processes may die of the same question. Whoever else uses
// the plugin needs the process, too.
const deadly = 3

// unlessDeadly returns f for a call that gives up when process after process
// dies of it.
func (p *Plugin) unlessDeadly(what string, f func(*process) error) func(*process) error {
	died := 0
	return func(process *process) error {
		if died == deadly {
			return fmt.Errorf("plugin %s died %d times when it was asked to %s this", p.spec.Name, died, what)
		}
		err := f(process)
		if unanswered(err) || host.TimedOut(err) {
			died++
		}
		return err
	}
}

package conformance

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Result is how a check ended.
type Result struct {
	// Failed and Skipped are false for a check that passed.
	Failed, Skipped bool

	// Report holds what the check said, a line each.
	Report []string

	// Duration is how long it took.
	Duration time.Duration
}

// Run runs a check and returns how it ended. A panic is a failure. Its context
// ends with ctx.
func Run(ctx context.Context, c Check) Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &recorder{ctx: ctx}
	begin := time.Now()
	r.call(func() { c.Run(r) })
	cancel()
	for {
		f, ok := r.nextCleanup()
		if !ok {
			break
		}
		r.call(f)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return Result{Failed: r.failed, Skipped: r.skipped && !r.failed, Report: slices.Clone(r.lines), Duration: time.Since(begin)}
}

// recorder is the T of Run. It is safe for concurrent use.
type recorder struct {
	ctx context.Context

	mu              sync.Mutex
	failed, skipped bool
	lines           []string
	cleanups        []func()
}

var _ T = (*recorder)(nil)

// call calls f in a goroutine that f may end, and waits for that.
func (r *recorder) call(f func()) {
	var done sync.WaitGroup
	done.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				r.Errorf("panic: %v\n%s", v, debug.Stack())
			}
		}()
		f()
	})
	done.Wait()
}

func (r *recorder) nextCleanup() (func(), bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.cleanups) - 1
	if n < 0 {
		return nil, false
	}
	f := r.cleanups[n]
	r.cleanups = r.cleanups[:n]
	return f, true
}

// Helper does nothing: lines of code mean nothing to the reader of a report.
func (r *recorder) Helper() {}

// Logf adds a line to the report.
func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) < maxReport {
		r.lines = append(r.lines, strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}

// maxReport is how many lines are kept of a check that fails again and again.
const maxReport = 10

// Errorf adds a line to the report of a check that has failed.
func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

// Fatalf is Errorf, and ends the goroutine.
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// Skipf says why a check does not apply, and ends the goroutine.
func (r *recorder) Skipf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

// Context returns the context of the check.
func (r *recorder) Context() context.Context { return r.ctx }

// Cleanup calls f at the end of the check, the last one first.
func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

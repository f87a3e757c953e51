package pluginhost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// patience is how long something may take that should take no time.
const patience = time.Minute

// limit is how many requests may run at once.
const limit = 3

// A world is a plugin with one instance and one catalog.
type world struct {
	*pluginhost.Plugin
	in       *pluginhost.Instance
	catalog  *host.Catalog
	log      *logs
	arrivals atomic.Int64
}

func testSpec() pluginhost.Spec {
	return pluginhost.Spec{Name: "test", Path: pluginPath, StartTimeout: patience, HostVersion: "test"}
}

// startPlugin starts the test plugin. It is closed when the test has ended.
func startPlugin(t testing.TB, args ...string) (*pluginhost.Plugin, *logs) {
	t.Helper()
	spec := testSpec()
	spec.Args = args
	return startSpec(t, pluginhost.StartImpatient, spec)
}

// startSpec starts a plugin by one of the functions for that.
func startSpec(t testing.TB, start func(context.Context, pluginhost.Spec, *zap.Logger) (*pluginhost.Plugin, error), spec pluginhost.Spec) (*pluginhost.Plugin, *logs) {
	t.Helper()
	log := newLogs(t)
	p, err := start(t.Context(), spec, log.logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePlugin(p) })
	return p, log
}

func closePlugin(p *pluginhost.Plugin) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	p.Close(ctx)
}

// newWorld starts the test plugin with the given options of its policy.
func newWorld(t testing.TB, options string) *world {
	t.Helper()
	p, log := startPlugin(t)
	return populate(t, p, log, options)
}

// newSternWorld is newWorld with a host that takes a process for hung soon.
func newSternWorld(t testing.TB, options string) *world {
	t.Helper()
	p, log := startSpec(t, pluginhost.StartStern, testSpec())
	return populate(t, p, log, options)
}

// populate configures a plugin.
func populate(t testing.TB, p *pluginhost.Plugin, log *logs, options string) *world {
	t.Helper()
	w := &world{Plugin: p, log: log, catalog: newCatalog(t, "k1")}
	w.in = configure(t, p, options)
	if err := p.AddCatalog(within(t), w.catalog); err != nil {
		t.Fatal(err)
	}
	return w
}

// within returns a context for something that should take no time.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func configure(t testing.TB, p *pluginhost.Plugin, options string) *pluginhost.Instance {
	t.Helper()
	in, err := p.Configure(within(t), "line", json.RawMessage(options))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// newCatalog returns a catalog of keys that may serve limit requests at once.
func newCatalog(t testing.TB, keys ...string) *host.Catalog {
	t.Helper()
	return newCatalogOf(t, limit, keys...)
}

func newCatalogOf(t testing.TB, limit int64, keys ...string) *host.Catalog {
	t.Helper()
	var candidates []policy.Candidate
	for _, k := range keys {
		candidates = append(candidates, policy.Candidate{
			ID: "p/" + k + "/m", Provider: "p", Key: k, Model: "m", Weight: 1,
			Scopes: []policy.Scope{{ID: "key:p/" + k, Kind: policy.ScopeConcurrency, Limit: limit}},
		})
	}
	c, err := host.NewCatalog(candidates)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// request returns a new request.
func (w *world) request() *policy.Request {
	n := w.arrivals.Add(1)
	return &policy.Request{ID: fmt.Sprintf("r%d", n), Arrival: n, Model: "m"}
}

// decide asks for everything about a request.
func (w *world) decide(ctx context.Context, r *policy.Request) (*host.Decision, error) {
	return w.decideWithin(ctx, patience, r)
}

// decideWithin is decide with the time that a process has to answer.
func (w *world) decideWithin(ctx context.Context, timeout time.Duration, r *policy.Request) (*host.Decision, error) {
	return w.Decide(ctx, timeout, &host.DecideRequest{
		Request: r, Catalog: w.catalog, Candidates: w.catalog.Candidates,
		Select: []string{w.in.Name()}, Admit: w.in.Name(), Attempt: 1,
	})
}

// admit returns when a request may run.
func (w *world) admit(ctx context.Context, r *policy.Request) error {
	d, err := w.decide(ctx, r)
	if err != nil {
		return err
	}
	a := d.Admission
	if a == nil {
		return fmt.Errorf("no admission for %s: %+v", r.ID, d.Selections)
	}
	if a.Waiting {
		a, err = w.in.Admit(ctx, host.AdmitRequest{
			Request: r, Attempt: 1, Catalog: w.catalog, Candidates: w.catalog.Candidates, SeenPosition: a.Position,
		}, func(int) {})
	}
	switch {
	case err != nil:
		return err
	case a.Err != nil:
		return a.Err
	case a.Rejection != nil:
		return a.Rejection
	}
	return nil
}

// run admits a request that must get its lease at once.
func (w *world) run(t testing.TB) *policy.Request {
	t.Helper()
	r := w.request()
	if err := w.admit(within(t), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// wait starts a request, and returns when it waits. It sends on the channel
// when it may run.
func (w *world) wait(ctx context.Context, t testing.TB, admitted chan<- *policy.Request) *policy.Request {
	t.Helper()
	_, before := w.Held()
	r := w.request()
	go func() {
		if err := w.admit(ctx, r); err == nil {
			admitted <- r
		} else if !errors.Is(err, context.Canceled) && ctx.Err() == nil {
			t.Errorf("request %s: %v", r.ID, err)
		}
	}()
	eventually(t, func() error {
		if _, waiting := w.Held(); waiting != before+1 {
			return fmt.Errorf("%d requests wait, want %d", waiting, before+1)
		}
		return nil
	})
	return r
}

func (w *world) release(r *policy.Request) <-chan struct{} {
	return w.in.Release(r.ID, 1, policy.Outcome{Disposition: policy.OK}, trace.SpanContext{})
}

// observe tells how an attempt of r ended.
func (w *world) observe(r *policy.Request) {
	w.Observe([]string{w.in.Name()}, host.Observation{Catalog: w.catalog, Result: policy.AttemptResult{
		RequestID: r.ID, Attempt: 1, Candidate: w.catalog.Candidates[0], Disposition: policy.OK,
	}})
}

// kill kills the process with kill -9.
func (w *world) kill(t testing.TB) {
	t.Helper()
	signal(t, w.PID(), syscall.SIGKILL)
}

// crash kills the process and returns when another one serves.
func (w *world) crash(t testing.TB) {
	t.Helper()
	restarts := w.Restarts()
	w.kill(t)
	w.restarted(t, restarts+1)
}

// restarted returns when the process has been restarted n times and serves.
func (w *world) restarted(t testing.TB, n int) {
	t.Helper()
	eventually(t, func() error {
		if w.Restarts() < n || w.PID() == 0 {
			return fmt.Errorf("restarted %d times, want %d", w.Restarts(), n)
		}
		return nil
	})
}

// holds waits until the host counts so many requests.
func (w *world) holds(t testing.TB, running, waiting int) {
	t.Helper()
	eventually(t, func() error {
		if r, q := w.Held(); r != running || q != waiting {
			return fmt.Errorf("%d run and %d wait, want %d and %d", r, q, running, waiting)
		}
		return nil
	})
}

// empty checks that nothing is left of any request: all of the limit is free.
func (w *world) empty(t testing.TB) {
	t.Helper()
	w.holds(t, 0, 0)
	var running []*policy.Request
	for range limit {
		running = append(running, w.run(t))
	}
	for _, r := range running {
		w.release(r)
	}
	w.holds(t, 0, 0)
}

func signal(t testing.TB, pid int, sig syscall.Signal) {
	t.Helper()
	if pid <= 0 {
		t.Fatalf("no process to signal")
	}
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// suspend stops a process, so that it hangs.
func suspend(t testing.TB, pid int) {
	t.Helper()
	signal(t, pid, syscall.SIGSTOP)
	eventually(t, func() error {
		if s := state(pid); s != "T" {
			return fmt.Errorf("process %d is in state %q", pid, s)
		}
		return nil
	})
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	s := state(pid)
	return s != "" && s != "Z" && s != "X"
}

// state returns the letter for the state of a process, or nothing if there is
// no such process.
func state(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return after[:1]
}

// children are the processes that this one has started.
func children(t testing.TB) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, f := range files {
		text, _ := os.ReadFile(f) // the thread may have ended
		for word := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// eventually waits until check has nothing to say.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %s: %v", patience, err)
		}
	}
}

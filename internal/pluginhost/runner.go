package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

// pipeGrace is how long the output of a process is read after its end. A
// grandchild that inherited the pipes would keep them open for ever.
const pipeGrace = time.Second

// cmdRunner runs a plugin for go-plugin: with a life line as its standard
// input, in a process group of its own, and with its end noticed at once.
type cmdRunner struct {
	cmd            *exec.Cmd
	stdout, stderr *tail
	closers        []io.Closer   // what ends with the process
	exited         chan struct{} // closed when the process has ended
	err            error         // of the process, once exited
	kill           sync.Once
}

var _ runner.Runner = (*cmdRunner)(nil)

func newCmdRunner(cmd *exec.Cmd) *cmdRunner {
	return &cmdRunner{cmd: cmd, exited: make(chan struct{})}
}

// Start starts the process.
func (r *cmdRunner) Start(context.Context) error {
	isolate(r.cmd)
	var childSide []io.Closer
	pipe := func(toChild bool) (ours, theirs *os.File, err error) {
		pr, pw, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		ours, theirs = pr, pw
		if toChild {
			ours, theirs = pw, pr
		}
		r.closers, childSide = append(r.closers, ours), append(childSide, theirs)
		return ours, theirs, nil
	}
	defer func() { closeAll(childSide) }()
	_, stdin, err := pipe(true)
	if err != nil {
		return err
	}
	stdout, stdoutChild, err := pipe(false)
	if err != nil {
		return err
	}
	stderr, stderrChild, err := pipe(false)
	if err != nil {
		return err
	}
	r.stdout, r.stderr = &tail{r: stdout}, &tail{r: stderr}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = stdin, stdoutChild, stderrChild
	if err := spawn(r.cmd); err != nil {
		closeAll(r.closers)
		return err
	}
	go r.reap()
	return nil
}

// reap waits for the end of the process and then ends what belonged to it.
func (r *cmdRunner) reap() {
	r.err = r.cmd.Wait()
	close(r.exited)
	time.Sleep(pipeGrace)
	closeAll(r.closers)
}

func closeAll(closers []io.Closer) {
	for _, c := range closers {
		_ = c.Close() // nothing is lost: the other side is gone
	}
}

// Wait blocks until the process has ended.
func (r *cmdRunner) Wait(ctx context.Context) error {
	select {
	case <-r.exited:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill ends the process and all that it started.
func (r *cmdRunner) Kill(context.Context) error {
	var err error
	r.kill.Do(func() {
		if err = killGroup(r.cmd.Process.Pid); errors.Is(err, syscall.ESRCH) {
			err = nil
		}
	})
	return err
}

// Stdout, Stderr, Name and ID are what go-plugin wants to know.
func (r *cmdRunner) Stdout() io.ReadCloser { return r.stdout }

// Stderr is the log of the process.
func (r *cmdRunner) Stderr() io.ReadCloser { return r.stderr }

// Name is the path of the executable.
func (r *cmdRunner) Name() string { return r.cmd.Path }

// ID is the process ID.
func (r *cmdRunner) ID() string {
	if r.cmd.Process == nil {
		return ""
	}
	return strconv.Itoa(r.cmd.Process.Pid)
}

// Diagnose adds nothing: [startError] says what is known.
func (r *cmdRunner) Diagnose(context.Context) string { return "" }

// PluginToHost and HostToPlugin are the identity: both live on one machine.
func (r *cmdRunner) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin is the identity.
func (r *cmdRunner) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// tail reads through and remembers the beginning and the end of what it read.
type tail struct {
	r io.ReadCloser

	mu         sync.Mutex
	head, last []byte
}

const tailBytes = 2048

func (t *tail) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := tailBytes - len(t.head); room > 0 {
		t.head = append(t.head, p[:min(n, room)]...)
	}
	t.last = append(t.last, p[:n]...)
	if len(t.last) > tailBytes {
		t.last = t.last[len(t.last)-tailBytes:]
	}
	return n, err
}

func (t *tail) Close() error { return t.r.Close() }

func (t *tail) first() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.head)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}

// exitWord says how a process ended.
func exitWord(err error) string {
	if err == nil {
		return "it ended with exit status 0"
	}
	return fmt.Sprintf("it ended with %v", err)
}

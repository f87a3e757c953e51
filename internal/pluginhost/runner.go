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
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

// pipeGrace is how long the output of a process is read after its end. One that
// left its group and inherited the pipes would keep them open for ever.
const pipeGrace = time.Second

// cmdRunner runs a plugin for go-plugin: with a life line as its standard
// input, in a process group of its own that ends with it, and with its end
// noticed at once.
type cmdRunner struct {
	cmd       *exec.Cmd
	socketDir string // of go-plugin
	as        *identity
	pinned    *os.File // what to run instead of the path, or nil
	lifeline  *os.File
	stdout    *stdout
	stderr    *stderr
	exited    chan struct{} // closed when the process has ended
	err       error         // how it ended, once exited

	mu     sync.Mutex // guards what follows
	live   bool       // the number of the process is its own
	killed bool       // it must not start any more
}

var _ runner.Runner = (*cmdRunner)(nil)

var errKilled = errors.New("it was killed before it started")

// Start starts the process. Its output is to be read until it ends.
func (r *cmdRunner) Start(context.Context) error {
	ours, theirs, err := pipes()
	if err != nil {
		return err
	}
	defer closeAll(theirs[:])
	r.lifeline, r.stdout.file, r.stderr.file = ours[0], ours[1], ours[2]
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	isolate(r.cmd, r.as)
	if r.pinned != nil {
		defer func() { _ = r.pinned.Close() }() // the process has it
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed {
		return errKilled
	}
	if err := spawn(r.cmd); err != nil {
		return err
	}
	r.live = true
	go r.reap()
	return nil
}

// pipes returns the host's and the process's ends of the pipes to its standard
// streams.
func pipes() (ours, theirs [3]*os.File, err error) {
	for fd := range ours {
		if ours[fd], theirs[fd], err = os.Pipe(); err != nil {
			closeAll(ours[:])
			closeAll(theirs[:])
			return ours, theirs, err
		}
	}
	ours[0], theirs[0] = theirs[0], ours[0] // the process reads from its input
	return ours, theirs, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing is lost: the other side is gone
	}
}

// reap waits for the end of the process, and ends what it started.
func (r *cmdRunner) reap() {
	r.err = wait(r.cmd, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		_ = killGroup(r.cmd.Process) // there may be nobody left
		r.live = false
	})
	close(r.exited)
	end := time.Now().Add(pipeGrace)
	_ = r.stdout.file.SetReadDeadline(end) // pipes have deadlines
	_ = r.stderr.file.SetReadDeadline(end)
}

// kill ends the process and all that it started, or keeps it from starting.
func (r *cmdRunner) kill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = true
	if !r.live {
		return nil
	}
	err := killGroup(r.cmd.Process)
	_ = r.lifeline.Close() // ends even one that may not be killed; only then, for it would begin to close its policies
	return err
}

// free gives back what the process had. Nobody may read its output any more.
func (r *cmdRunner) free() {
	closeAll([]*os.File{r.lifeline, r.stdout.file, r.stderr.file, r.pinned})
	if r.socketDir != "" {
		_ = os.RemoveAll(r.socketDir) // go-plugin forgets it if nothing started
	}
}

// hasExited reports whether the process has ended, or does so within d.
func (r *cmdRunner) hasExited(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return !errors.Is(r.Wait(ctx), context.DeadlineExceeded)
}

// wasKilled reports whether the host has killed the process.
func (r *cmdRunner) wasKilled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killed
}

// exitWord says how the process ended, once it has.
func (r *cmdRunner) exitWord() string {
	if r.err == nil {
		return "it ended with exit status 0"
	}
	return fmt.Sprintf("it ended with %v", r.err)
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
func (r *cmdRunner) Kill(context.Context) error { return r.kill() }

// Stdout is the handshake.
func (r *cmdRunner) Stdout() io.ReadCloser { return r.stdout }

// Stderr is empty; what the process writes is logged.
func (r *cmdRunner) Stderr() io.ReadCloser { return r.stderr }

// Name is the path of the executable.
func (r *cmdRunner) Name() string { return r.cmd.Path }

// ID is the process ID, or empty if the process was not started.
func (r *cmdRunner) ID() string {
	if r.cmd.Process == nil {
		return ""
	}
	return strconv.Itoa(r.cmd.Process.Pid)
}

// Diagnose adds nothing: [startError] says what is known.
func (*cmdRunner) Diagnose(context.Context) string { return "" }

// PluginToHost is the identity: both live on one machine.
func (*cmdRunner) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin is the identity.
func (*cmdRunner) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

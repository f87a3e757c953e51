// Package fleet runs replicas as processes: copies of the executable that calls
// it, which open the policy for themselves.
package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/usherproxy/usher/bench/admission/internal/load"
)

// variable is in the environment of a process that is to be a replica.
const variable = "USHER_BENCH_REPLICA"

// Main is to be called first of all by every executable that starts replicas. In
// one that is a replica it does not return.
func Main() {
	if os.Getenv(variable) == "" {
		return
	}
	if err := replica(); err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// replica does the job that the standard input tells, and ends with the input.
func replica() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	in := bufio.NewReader(os.Stdin)
	var job load.Job
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &job)
	}
	if err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	begin := make(chan struct{})
	go func() {
		if _, err := in.ReadByte(); err == nil {
			close(begin)
			_, err = in.ReadByte()
			_ = err // whatever comes is the end
		}
		cancel()
	}()
	report, err := job.Run(ctx, func() { fmt.Println(`"ready"`) }, begin)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

// A Replica is a process that does a job.
type Replica struct {
	Process *os.Process

	command *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

// Start starts a replica, and returns when its store has answered. The caller
// has to call Report or Kill.
func Start(job load.Job) (*Replica, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), variable+"=1")
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	r := &Replica{command.Process, command, in, json.NewDecoder(out)}
	var word string
	if err = json.NewEncoder(in).Encode(job); err == nil {
		err = r.out.Decode(&word)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start replica %d: %w", job.Replica, err), r.Kill())
	}
	return r, nil
}

// Begin lets the replica begin.
func (r *Replica) Begin() error {
	_, err := r.in.Write([]byte{'\n'})
	return err
}

// Report returns the report of a replica that has begun, when it has ended.
func (r *Replica) Report() (*load.Report, error) {
	var report load.Report
	err := r.out.Decode(&report)
	return &report, errors.Join(err, r.in.Close(), r.command.Wait())
}

// Kill ends the replica at once.
func (r *Replica) Kill() error {
	err := r.command.Process.Kill()
	_ = r.command.Wait() // says that it was killed
	return err
}

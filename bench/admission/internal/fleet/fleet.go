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

// The commands of a replica, one a line.
const (
	commandRun   = "run"
	commandCheck = "check"
)

// replica does the job that the first line of the standard input tells, as the
// next lines say, and ends with the input.
func replica() error {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	var job load.Job
	if !in.Scan() {
		return errors.New("no job")
	}
	if err := json.Unmarshal(in.Bytes(), &job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	commands := make(chan string)
	go func() {
		defer cancel()
		defer close(commands)
		for in.Scan() {
			commands <- in.Text()
		}
	}()
	session, err := load.Open(ctx, job)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	err = out.Encode("ready")
	for command := range commands {
		var report *load.Report
		if err == nil && command == commandRun {
			report, err = session.Run(ctx)
		} else if err == nil {
			report, err = session.Check(ctx)
		}
		if err != nil {
			break
		}
		err = out.Encode(report)
	}
	return errors.Join(err, session.Close())
}

// A Replica is a process that does a job.
type Replica struct {
	Process *os.Process

	command *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

// Start starts a replica, and returns when its store has answered. The caller
// has to call Close or Kill.
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
func (r *Replica) Begin() error { return r.say(commandRun) }

func (r *Replica) say(command string) error {
	_, err := fmt.Fprintln(r.in, command)
	return err
}

// Report returns the report of a replica that has begun, when it is done.
func (r *Replica) Report() (*load.Report, error) {
	var report load.Report
	return &report, r.out.Decode(&report)
}

// Check lets a replica that is done do its audit.
func (r *Replica) Check() error {
	if err := r.say(commandCheck); err != nil {
		return err
	}
	_, err := r.Report()
	return err
}

// Close ends the replica in order.
func (r *Replica) Close() error { return errors.Join(r.in.Close(), r.command.Wait()) }

// Kill ends the replica at once.
func (r *Replica) Kill() error {
	err := r.command.Process.Kill()
	_ = r.command.Wait() // says that it was killed
	return err
}

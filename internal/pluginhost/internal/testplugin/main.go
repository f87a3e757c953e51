// Command testplugin is a plugin for the tests of package pluginhost. It serves one
// policy, "line", which decides everything, and misbehaves as it is told to.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// config is the configuration of the policy.
type config struct {
	// Name makes configurations differ.
	Name string `json:"name"`

	// At is where the policy misbehaves: the name of a method in lower case.
	// Do is how; see trouble.
	At string `json:"at"`
	Do string `json:"do"`

	// Silent keeps the policy from logging each request.
	Silent bool `json:"silent"`

	// Once is a file that is made when the policy misbehaves. It does not if
	// there is one already.
	Once string `json:"once"`
}

func (c config) Validate() error {
	if c.Name == "" {
		return sdk.OptionError("name", "must not be empty")
	}
	return c.trouble("validate")
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "mute":
			mute()
		case "unavailable":
			unavailable()
		}
		return
	}
	sdk.Serve("line", config{Name: "default"}, func(_ context.Context, c config) (sdk.Policies, error) {
		slog.Info("built", "policy", c.Name, "details", map[string]int{"size": 3})
		p := &subject{config: c, line: newLine()}
		return sdk.Policies{Admission: p, Selection: p, Observer: p, Close: p.close}, c.trouble("build")
	})
}

// trouble misbehaves if that was asked for at this place.
func (c config) trouble(at string) error {
	if c.At != at {
		return nil
	}
	if c.Once != "" {
		f, err := os.OpenFile(c.Once, os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	switch c.Do {
	case "exit":
		os.Exit(7)
	case "hang":
		select {}
	case "sleep":
		time.Sleep(time.Second)
	case "panic":
		go panic("a goroutine of the policy panicked")
		select {}
	case "error":
		return fmt.Errorf("the policy cannot %s", at)
	case "print":
		fmt.Println("printed to standard output")
		fmt.Print("printed in part")
	case "spew":
		return spew()
	case "spawn":
		return spawn(false)
	case "daemon":
		return spawn(true)
	}
	return nil
}

// spew writes what a reader of lines may choke on, to where a plugin in another
// language writes, too.
func spew() error {
	long := strings.Repeat("x", 3<<20) + "\n"
	for _, fd := range []string{"1", "2"} {
		f, err := os.OpenFile("/proc/self/fd/"+fd, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		for _, text := range []string{long, `{"@message":1,"@level":2,"@timestamp":3}` + "\n", "after the long line\n"} {
			if _, err := f.WriteString(text); err != nil {
				return err
			}
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// spawn starts a process that keeps our output open. A daemon leaves our group.
func spawn(daemon bool) error {
	out, err := os.OpenFile("/proc/self/fd/2", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sleep", "600")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: daemon}
	if err := cmd.Start(); err != nil {
		return err
	}
	slog.Info("spawned", "pid", cmd.Process.Pid)
	return out.Close()
}

// subject is the policy.
type subject struct {
	config
	line *line
}

func (s *subject) Select(_ context.Context, req *policy.SelectRequest) (policy.Selection, error) {
	var sel policy.Selection
	for _, c := range req.Candidates {
		sel.Add(c)
	}
	return sel, s.trouble("select")
}

func (s *subject) Admit(ctx context.Context, req *policy.AdmitRequest) (policy.Lease, error) {
	if err := s.trouble("admit"); err != nil {
		return nil, err
	}
	lease, err := s.line.Admit(ctx, req)
	if err != nil {
		return nil, err
	}
	return s.report(req.Request.ID, lease), nil
}

func (s *subject) Restore(ctx context.Context, running []policy.Held, waiting []policy.AdmitRequest) ([]policy.Lease, error) {
	slog.Info("restored", "running", len(running), "waiting", len(waiting))
	leases, err := s.line.Restore(ctx, running, waiting)
	for i := range leases {
		leases[i] = s.report(running[i].Request.ID, leases[i])
	}
	if err != nil {
		return nil, err
	}
	return leases, s.trouble("restore")
}

// report logs the release of a lease.
func (s *subject) report(id string, l policy.Lease) policy.Lease {
	return policy.LeaseOn(l.Candidate(), func(ctx context.Context, out policy.Outcome) error {
		if err := s.trouble("release"); err != nil {
			return err
		}
		if !s.Silent {
			slog.Info("released", "request", id, "disposition", string(out.Disposition))
		}
		return l.Release(ctx, out)
	})
}

func (s *subject) Observe(_ context.Context, res policy.AttemptResult) {
	if err := s.trouble("observe"); err != nil {
		slog.Error("observe", "error", err)
	}
	slog.Info("observed", "request", res.RequestID, "policy", s.Name)
}

// Operate echoes the command.
func (s *subject) Operate(_ context.Context, cmd policy.Command) (json.RawMessage, error) {
	if err := s.trouble("operate"); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{cmd.Name: cmd.Input})
}

func (s *subject) close(context.Context) error {
	slog.Info("closed", "policy", s.Name)
	return s.trouble("close")
}

var (
	_ policy.Selector = (*subject)(nil)
	_ policy.Restorer = (*subject)(nil)
	_ policy.Observer = (*subject)(nil)
	_ policy.Operable = (*subject)(nil)
)

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"go.uber.org/zap"

	"github.com/usherproxy/usher/sdk/host"
)

// A process is one life of a plugin.
type process struct {
	*host.Client
	info   host.Info
	plugin *plugin.Client
	runner *cmdRunner
}

// killAfter is how long a process that was told to end may take. A plugin has
// go-plugin's two seconds to close its policies; the rest is for a busy machine.
const killAfter = 4 * time.Second

// startProcess starts a process of spec and returns when it serves.
func startProcess(ctx context.Context, spec Spec, log *zap.Logger) (*process, error) {
	r := newCmdRunner(exec.Command(spec.Path, spec.Args...))
	p := &process{runner: r}
	p.plugin = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  host.Handshake,
		VersionedPlugins: host.PluginSets(),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
			// cmd carries the environment that go-plugin needs; the rest is ours.
			r.cmd.Env = append(append(cmd.Env, host.LifelineEnv+"=1"), spec.Env...)
			return r, nil
		},
		SkipHostEnv:      true,
		StartTimeout:     spec.StartTimeout,
		Logger:           newHclog(log),
		SyncStdout:       &lineLogger{log: log},
		SyncStderr:       &lineLogger{log: log},
		GRPCDialOptions:  host.DialOptions(),
		UnixSocketConfig: &plugin.UnixSocketConfig{},
	})
	if err := p.connect(ctx, spec); err != nil {
		err = p.startError(spec, err)
		p.kill()
		return nil, err
	}
	return p, nil
}

func (p *process) connect(ctx context.Context, spec Spec) error {
	protocol, err := p.plugin.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(host.PluginName)
	if err != nil {
		return err
	}
	client, ok := raw.(*host.Client)
	if !ok {
		return fmt.Errorf("unexpected client %T", raw)
	}
	p.Client = client
	ctx, cancel := context.WithTimeout(ctx, spec.StartTimeout)
	defer cancel()
	p.info, err = client.Info(ctx, spec.HostVersion)
	return err
}

// startError says why a process does not serve, in words that help the one who
// wrote the plugin or its configuration.
func (p *process) startError(spec Spec, err error) error {
	r := p.runner
	if r.stdout == nil || r.cmd.Process == nil {
		return fmt.Errorf("start plugin %s (%s): %w", spec.Name, spec.Path, err)
	}
	select {
	case <-r.exited:
	case <-time.After(50 * time.Millisecond): // its exit may be a moment behind its output
	}
	said, _, _ := strings.Cut(r.stdout.first(), "\n")
	handshake := strings.Split(said, "|")
	var why string
	select {
	case <-r.exited:
		why = exitWord(r.err) + " before it served; is it a plugin of Usher, made with sdk.Serve?"
	default:
		why = fmt.Sprintf("it did not begin to serve within %s (start_timeout)", spec.StartTimeout)
	}
	switch {
	case said != "" && len(handshake) < 4:
		why = fmt.Sprintf("it wrote %q to standard output, where only the handshake may stand: let it log to standard error", cut(said))
	case len(handshake) >= 4 && strings.Contains(err.Error(), "incompatible API version"):
		why = fmt.Sprintf("it speaks version %s of the plugin protocol, and this Usher speaks version %d: rebuild the plugin with the SDK of this Usher, or update Usher",
			handshake[1], host.Handshake.ProtocolVersion)
	case len(handshake) >= 4:
		why = err.Error()
	}
	if log := strings.TrimSpace(r.stderr.String()); log != "" {
		why += "; its last words were: " + log
	}
	return fmt.Errorf("start plugin %s (%s): %s", spec.Name, spec.Path, why)
}

// exited is closed when the process has ended.
func (p *process) exited() <-chan struct{} { return p.runner.exited }

// pid is the process ID.
func (p *process) pid() int { return p.runner.cmd.Process.Pid }

// kill ends the process if it lives, and frees what belonged to it. It returns
// within killAfter, whatever the process does.
func (p *process) kill() {
	done := make(chan struct{})
	go func() {
		p.plugin.Kill()
		close(done)
	}()
	if p.runner.cmd.Process == nil {
		<-done
		return
	}
	select {
	case <-done:
	case <-time.After(killAfter):
	}
	_ = p.runner.Kill(context.Background()) // what it started may still live
	<-done
}

// errStopped is the error of calls to a plugin that was closed.
var errStopped = errors.New("the plugin was stopped")

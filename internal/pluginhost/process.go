package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
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
	spec    Spec
	info    host.Info
	plugin  *plugin.Client
	runner  *cmdRunner
	printed [2]*lines // to its standard streams, as go-plugin passes it on

	fingerprint fingerprint // of its executable

	// calls are those that have not been answered, and whose answer has not
	// been noted. See [Plugin.call].
	calls sync.WaitGroup
}

// maxSocketDir is how long the name of the directory may be in which a plugin
// makes its socket: less than the 104 bytes that a system may have for all of it.
const maxSocketDir = 104 - len("/plugin1234567890") - 1

// errStartTimeout is why a process is killed that does not begin to serve.
var errStartTimeout = errors.New("it did not begin to serve in time")

// startProcess starts a process of spec and returns when it serves.
func startProcess(ctx context.Context, spec Spec, log *zap.Logger) (*process, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, spec.StartTimeout, errStartTimeout)
	defer cancel()
	p := newProcess(spec, log)
	stop := context.AfterFunc(ctx, func() { _ = p.runner.kill() }) // ends connect
	err := p.connect(ctx, spec.HostVersion)
	stop()
	if err != nil {
		return nil, p.startError(ctx, spec, err)
	}
	return p, nil
}

// newProcess returns a process that is not started.
func newProcess(spec Spec, log *zap.Logger) *process {
	limit := &logLimit{log: log, now: time.Now, perSecond: linesPerSecond}
	text := func() *lines { return &lines{log: log, limit: limit} }
	r := &cmdRunner{
		cmd: exec.Command(spec.Path, spec.Args...), exited: make(chan struct{}),
		stdout: &stdout{rest: text()}, stderr: &stderr{all: text()},
	}
	p := &process{spec: spec, runner: r, printed: [2]*lines{text(), text()}, fingerprint: fingerprintOf(spec.Path)}
	p.plugin = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  host.Handshake,
		VersionedPlugins: host.PluginSets(),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, socketDir string) (runner.Runner, error) {
			// cmd carries the environment that go-plugin needs; the rest is ours.
			r.cmd.Env = append(append(cmd.Env, host.LifelineEnv+"=1"), spec.Env...)
			r.socketDir = socketDir
			if len(socketDir) > maxSocketDir {
				return nil, fmt.Errorf("the directory for sockets has more than %d bytes: set TMPDIR to a shorter one than %s", maxSocketDir, os.TempDir())
			}
			return r, r.prepare(spec)
		},
		SkipHostEnv:      true,
		AutoMTLS:         spec.AutoMTLS,
		StartTimeout:     2 * spec.StartTimeout, // the context of startProcess ends before
		Logger:           hclog.NewNullLogger(), // what it knows is logged by us
		SyncStdout:       p.printed[0],
		SyncStderr:       p.printed[1],
		GRPCDialOptions:  host.DialOptions(),
		UnixSocketConfig: &plugin.UnixSocketConfig{},
	})
	return p
}

// connect starts the process and returns when it serves. It ends when the
// process is killed.
func (p *process) connect(ctx context.Context, hostVersion string) error {
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
	if p.info, err = client.Info(ctx, hostVersion); err != nil {
		return err
	}
	return p.openSession(ctx)
}

// openSession opens the session that the process can serve best, if any.
func (p *process) openSession(ctx context.Context) error {
	can := func(what string) bool { return slices.Contains(p.info.Capabilities, what) }
	switch {
	case can(host.CapabilityFrames) && !p.spec.AutoMTLS:
		addr := p.plugin.ReattachConfig().Addr
		conn, err := new(net.Dialer).DialContext(ctx, addr.Network(), addr.String())
		if err != nil {
			return fmt.Errorf("connect for frames: %w", err)
		}
		return p.OpenFrames(conn)
	case can(host.CapabilitySession):
		return p.OpenSession()
	}
	return nil
}

// broken reports whether the session of a process that serves one has ended.
func (p *process) broken() bool {
	select {
	case <-p.Ended():
		return true
	default:
		return false
	}
}

// pid is the process ID.
func (p *process) pid() int {
	if p.inline() {
		return os.Getpid()
	}
	return p.runner.cmd.Process.Pid
}

// inline reports whether the process is the host's own.
func (p *process) inline() bool { return p.runner == nil }

// unkillable is how long a process may take to end after it was killed.
const unkillable = 5 * time.Second

// end ends the process if it lives, and frees what belonged to it. The policies
// have patience to close. It reports false for a process that cannot be killed.
func (p *process) end(patience time.Duration) bool {
	ended := make(chan struct{})
	kill := time.AfterFunc(patience, func() { _ = p.runner.kill() })
	defer kill.Stop()
	go func() {
		defer close(ended)
		p.plugin.Kill() // returns when the process has ended and its output is read
		p.runner.free()
		for _, l := range p.printed {
			l.flush()
		}
		p.runner.stderr.all.limit.flush()
	}()
	select {
	case <-ended:
		return true
	case <-time.After(patience + unkillable):
		return false
	}
}

package sdk_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// testpluginDir holds the executable of a plugin, once a test has built it.
var testpluginDir string

var testplugin = sync.OnceValues(func() (path string, err error) {
	if testpluginDir, err = os.MkdirTemp("", "usher-testplugin"); err != nil {
		return "", err
	}
	path = filepath.Join(testpluginDir, "testplugin")
	out, err := exec.Command("go", "build", "-o", path, "./internal/testplugin").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func removeTestplugin() error {
	if testpluginDir == "" {
		return nil
	}
	return os.RemoveAll(testpluginDir)
}

// A process is a plugin in a process of its own.
type process struct {
	*host.Client
	client *goplugin.Client
	cmd    *exec.Cmd
	life   *os.File // the host's end of the process's standard input
	stderr *buffer
}

// A buffer can be read while it is written.
type buffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// start starts a plugin as a host does. go-plugin hands on the standard input
// of this process, so the test must not be parallel.
func start(t *testing.T, env ...string) *process {
	t.Helper()
	path, err := testplugin()
	if err != nil {
		t.Fatalf("build testplugin: %v", err)
	}
	stdin, life, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = life.Close() })
	defer func(before *os.File) { os.Stdin = before }(os.Stdin)
	os.Stdin = stdin
	defer func() { _ = stdin.Close() }() // the child has it

	p := &process{cmd: exec.Command(path), life: life, stderr: &buffer{}}
	p.cmd.Env = append([]string{"TMPDIR=" + os.TempDir()}, env...)
	p.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  host.Handshake,
		VersionedPlugins: host.PluginSets(),
		Cmd:              p.cmd,
		SkipHostEnv:      true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		GRPCDialOptions:  host.DialOptions(),
		Stderr:           p.stderr,
		Logger:           hclog.NewNullLogger(),
	})
	t.Cleanup(p.client.Kill)
	protocol, err := p.client.Client()
	if err != nil {
		t.Fatalf("start: %v\n%s", err, p.stderr)
	}
	raw, err := protocol.Dispense(host.PluginName)
	if err != nil {
		t.Fatal(err)
	}
	p.Client = raw.(*host.Client)
	return p
}

// selects asks the plugin about one request.
func (p *process) selects(t *testing.T, kinds host.Kinds, id string) {
	t.Helper()
	selection, err := p.Instance("i", kinds).Selection.Select(t.Context(), &policy.SelectRequest{
		Request: &policy.Request{ID: id}, Candidates: []policy.Candidate{{ID: "a"}, {ID: "b"}},
	})
	if err != nil || len(selection.Verdicts) != 2 {
		t.Fatalf("select: %+v, %v; want two verdicts", selection, err)
	}
}

// ended waits for the end of the process.
func (p *process) ended(t *testing.T, within time.Duration) {
	t.Helper()
	deadline := time.After(within)
	for !p.client.Exited() {
		select {
		case <-deadline:
			t.Fatalf("the process lives after %s:\n%s", within, p.stderr)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestAProcessServes(t *testing.T) {
	p := start(t)
	info, err := p.Info(t.Context(), "test")
	if err != nil || info.Name != "testplugin" || strings.Join(info.Policies, " ") != "testplugin" {
		t.Errorf("info is %+v (%v)", info, err)
	}
	if ds, err := p.ValidateConfig(t.Context(), "testplugin", json.RawMessage(`{"stuck": 1}`)); err != nil || len(ds) != 1 {
		t.Errorf("validate: %v, %v; want an error about stuck", ds, err)
	}
	kinds, err := p.Configure(t.Context(), "i", "testplugin", nil)
	if want := (host.Kinds{Selection: true, Admission: true}); err != nil || kinds != want {
		t.Fatalf("kinds are %+v (%v), want %+v", kinds, err, want)
	}
	p.selects(t, kinds, "r1")
	lease, err := p.Instance("i", kinds).Admission.Admit(t.Context(), &policy.AdmitRequest{
		Request: &policy.Request{ID: "r1"}, Attempt: 1, Candidates: []policy.Candidate{{ID: "a"}},
	})
	if err != nil {
		t.Fatalf("admit: %v", err)
	}
	if err := lease.Release(t.Context(), policy.Outcome{Disposition: policy.OK}); err != nil {
		t.Errorf("release: %v", err)
	}
	p.client.Kill()
	p.ended(t, patience)
	if _, err := p.Info(t.Context(), "test"); !host.Unavailable(err) {
		t.Errorf("a call of a process that has ended: %v, want unavailable", err)
	}
}

func TestAProcessLogsAsHclog(t *testing.T) {
	p := start(t)
	kinds, err := p.Configure(t.Context(), "i", "testplugin", nil)
	if err != nil {
		t.Fatal(err)
	}
	p.selects(t, kinds, "r1")
	p.client.Kill() // flushes the log
	for line := range strings.Lines(p.stderr.String()) {
		got := map[string]any{}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Errorf("line %q is no JSON: %v", line, err)
		}
		stamp, _ := got["@timestamp"].(string)
		if _, err := time.Parse(hclog.TimeFormatJSON, stamp); err != nil {
			t.Errorf("line %q: %v", line, err)
		}
		if got["@message"] == "select" && got["@level"] == "info" && got["request"] == "r1" && got["candidates"] == 2.0 {
			return
		}
	}
	t.Errorf("the line of the policy is not in:\n%s", p.stderr)
}

func TestAProcessIgnoresSignalsThatEndItsHost(t *testing.T) {
	p := start(t)
	kinds, err := p.Configure(t.Context(), "i", "testplugin", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		for range 3 {
			if err := p.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			p.selects(t, kinds, "r1")
		}
	}
}

func TestAProcessEndsWithItsHost(t *testing.T) {
	for name, config := range map[string]string{"soon": `{}`, "also if a policy does not": `{"stuck_close": true}`} {
		t.Run(name, func(t *testing.T) {
			p := start(t, host.LifelineEnv+"=1")
			kinds, err := p.Configure(t.Context(), "i", "testplugin", json.RawMessage(config))
			if err != nil {
				t.Fatal(err)
			}
			p.selects(t, kinds, "r1")
			if err := p.life.Close(); err != nil {
				t.Fatal(err)
			}
			p.ended(t, patience)
		})
	}
}

func TestAProcessWithoutALifelineIgnoresItsInput(t *testing.T) {
	p := start(t)
	kinds, err := p.Configure(t.Context(), "i", "testplugin", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.life.Close(); err != nil {
		t.Fatal(err)
	}
	p.selects(t, kinds, "r1")
}

func TestAProcessThatIsStartedByHandSaysSo(t *testing.T) {
	t.Parallel()
	path, err := testplugin()
	if err != nil {
		t.Fatalf("build testplugin: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Stdin, cmd.Stdout = nil, io.Discard
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "plugin") {
		t.Errorf("started by hand: %v, %s", err, stderr.String())
	}
}

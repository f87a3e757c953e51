package pluginhost_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
)

// byHand starts the test plugin as one does who debugs it. It ends with the
// test.
func byHand(t *testing.T, socket string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(pluginPath)
	cmd.Env = []string{"USHER_ATTACH=" + socket}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil && !strings.Contains(err.Error(), "killed") {
			t.Errorf("interrupted: %v", err)
		}
		if _, err := os.Stat(socket); err == nil && cmd.ProcessState.Success() {
			t.Error("the socket is left")
		}
	})
	eventually(t, func() error {
		_, err := os.Stat(socket)
		return err
	})
	return cmd
}

func TestAPluginThatWasStartedByHandIsAttached(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	spec := testSpec()
	spec.Path, spec.Args, spec.Env, spec.Patient = os.Args[0], []string{socket}, []string{hostEnv + "=attach"}, true
	if _, err := startWith(t, spec); err == nil || !strings.Contains(err.Error(), "start it with USHER_ATTACH="+socket) {
		t.Errorf("attached to nothing: %v", err)
	}
	plugin := byHand(t, socket)
	p, log := startSpec(t, pluginhost.StartStern, spec)
	w := populate(t, p, log, `{}`)
	running := w.run(t)

	// It is stopped at a breakpoint for longer than a plugin may hang.
	relay := w.PID()
	suspend(t, plugin.Process.Pid)
	admitted := make(chan error, 1)
	waits := w.request()
	go func() { admitted <- w.admit(t.Context(), waits) }()
	select {
	case err := <-admitted:
		t.Fatalf("a plugin that is stopped answers: %v", err)
	case <-time.After(6 * time.Second):
	}
	signal(t, plugin.Process.Pid, syscall.SIGCONT)
	if err := <-admitted; err != nil || w.PID() != relay {
		t.Errorf("after the breakpoint: %v, process %d instead of %d", err, w.PID(), relay)
	}
	w.release(waits)

	// It is started again by hand, and told what runs.
	if err := plugin.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	restarts := w.Restarts()
	eventually(t, func() error { // its socket is left
		return os.Remove(socket)
	})
	byHand(t, socket)
	w.restarted(t, restarts+1)
	w.release(running)
	w.empty(t)
}

// listen serves a policy at a socket as a plugin does that was started by hand
// and knows nothing of sessions. The returned function ends it.
func listen(t *testing.T, socket string) (end func()) {
	t.Helper()
	_ = os.Remove(socket) // of the one before
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, call *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		if m, ok := resp.(proto.Message); ok && strings.HasSuffix(call.FullMethod, "/GetInfo") {
			m.ProtoReflect().Clear(m.ProtoReflect().Descriptor().Fields().ByName("capabilities"))
		}
		return resp, err
	}))
	all := func(context.Context, *policy.Request, policy.Candidate) (policy.Why, error) { return policy.Why{}, nil }
	line := sdk.Define("line", struct{}{}, func(context.Context, struct{}) (sdk.Policies, error) {
		return sdk.Policies{Selection: policy.FilterFunc(all)}, nil
	})
	if err := sdk.NewServerPlugin(t.Context(), "test", line).GRPCServer(nil, server); err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // ends with Stop
	}()
	end = func() {
		server.Stop()
		<-served
	}
	t.Cleanup(end)
	return end
}

// A plugin that has forgotten everything behind its socket is told it again.
func TestAnAttachedPluginWithoutASessionIsFoundAgain(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	spec := testSpec()
	spec.Path, spec.Args, spec.Env, spec.Patient = os.Args[0], []string{socket}, []string{hostEnv + "=attach"}, true
	end := listen(t, socket)
	w, err := startWith(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		d, err := w.Decide(within(t), patience, &host.DecideRequest{
			Request: w.request(), Catalog: w.catalog, Candidates: w.catalog.Candidates, Select: []string{w.in.Name()}, Attempt: 1,
		})
		if err != nil || len(d.Selections) != 1 || len(d.Selections[0].Verdicts) != 1 {
			t.Errorf("got %+v and %v", d, err)
		}
		end()
		end = listen(t, socket)
	}
}

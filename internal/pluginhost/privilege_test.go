package pluginhost_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/pluginhost"
)

func checksum(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// startWith starts the test plugin with a spec.
func startWith(t *testing.T, spec pluginhost.Spec) (*world, error) {
	t.Helper()
	log := newLogs(t)
	p, err := pluginhost.StartImpatient(t.Context(), spec, log.logger)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { closePlugin(p) })
	return populate(t, p, log, `{}`), nil
}

func TestOnlyThePinnedExecutableRuns(t *testing.T) {
	t.Parallel()
	spec := testSpec()
	spec.Path = filepath.Join(t.TempDir(), "plugin")
	install(t, pluginPath, spec.Path)
	spec.Checksum = strings.ToUpper(checksum(t, pluginPath))
	w, err := startWith(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	w.release(w.run(t))

	// The file becomes another one. What runs goes on, and nothing else runs.
	executable(t, spec.Path+".other", "#!/bin/sh\nexec "+pluginPath+"\n")
	other := spec
	other.Path += ".other"
	want := "its checksum is sha256:" + checksum(t, other.Path)
	if _, err := startWith(t, other); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("another executable runs: %v, want %q", err, want)
	}
	install(t, other.Path, spec.Path)
	first := w.PID()
	if err := w.Renew(within(t), spec); err == nil || !strings.Contains(err.Error(), want) || w.PID() != first {
		t.Errorf("another executable takes over from %d as %d: %v", first, w.PID(), err)
	}
	// A new version comes with its checksum.
	spec.Checksum = checksum(t, other.Path)
	if err := w.Renew(within(t), spec); err != nil || w.PID() == first {
		t.Errorf("the new version does not take over from %d, %d serves: %v", first, w.PID(), err)
	}
	w.crash(t) // the next process is pinned, too
	w.release(w.run(t))
	w.empty(t)
}

func TestAPluginRunsAsWhomAndWhereItIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := testSpec()
	spec.Dir = dir
	if relative, err := filepath.Rel(mustGetwd(t), pluginPath); err == nil {
		spec.Path = relative
	}
	w, err := startWith(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", w.PID())); err != nil || got != dir {
		t.Errorf("it runs in %s (%v), want %s", got, err, dir)
	}
	for _, wrong := range []func(*pluginhost.Spec){
		func(s *pluginhost.Spec) { s.Dir = filepath.Join(dir, "none") },
		func(s *pluginhost.Spec) { s.User = "no-such-user" },
		func(s *pluginhost.Spec) { s.Group = "no-such-group" },
	} {
		spec := testSpec()
		wrong(&spec)
		if _, err := startWith(t, spec); err == nil || !strings.Contains(err.Error(), "start plugin test") {
			t.Errorf("started with %+v: %v", spec, err)
		}
	}
}

// Only root may give away its rights, so this tests that it does, or else that
// the error says what is needed.
func TestAPluginGivesUpItsRights(t *testing.T) {
	t.Parallel()
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plugin")
	install(t, pluginPath, path)
	spec := testSpec()
	// A pinned executable needs no way through the folders of others.
	spec.Path, spec.User, spec.Checksum = path, "nobody", checksum(t, path)
	w, err := startWith(t, spec)
	if os.Geteuid() != 0 {
		if err == nil || !strings.Contains(err.Error(), "user and group need root") {
			t.Errorf("not root, and started: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.PID()))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{"Uid:", nobody.Uid, nobody.Uid, nobody.Uid, nobody.Uid}, "\t")
	if !strings.Contains(string(status), want+"\n") {
		t.Errorf("it runs as somebody else than nobody:\n%s", status)
	}
	w.crash(t)
	w.release(w.run(t))
	w.empty(t)
}

func mustGetwd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAConnectionMayBeEncrypted(t *testing.T) {
	t.Parallel()
	spec := testSpec()
	spec.AutoMTLS = true
	w, err := startWith(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	r := w.run(t)
	w.crash(t)
	w.release(r)
	w.empty(t)
}

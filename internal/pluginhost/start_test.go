package pluginhost_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/internal/pluginhost"
)

func TestStartErrorsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		executable(t, path, text)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sh := func(name, text string) string { return script(name, "#!/bin/sh\n"+text+"\n", 0o700) }
	const slow = "did not begin to serve within 3s (start_timeout)"
	for _, tc := range []struct {
		name, path string
		want       []string // parts of the error
	}{
		{"not there", dir + "/none", []string{"no such file or directory"}},
		{"not in PATH", "no-such-plugin", []string{`"no-such-plugin": executable file not found in $PATH`}},
		{"directory", dir, []string{"it is a directory"}},
		{"not executable", script("plain", "#!/bin/sh\n", 0o600), []string{"permission denied: it must be executable (chmod +x)"}},
		{"no program", script("garbage", "\x00\x01", 0o700), []string{"exec format error: it must be built for"}},
		{"exits", sh("exits", "echo no database >&2; exit 3"), []string{
			"it ended with exit status 3 before it served; is it a plugin of Usher", "its last words were: no database",
		}},
		{"exits well", sh("well", "exit 0"), []string{"it ended with exit status 0 before it served"}},
		{"is killed", sh("killed", "kill -9 $$"), []string{"it ended with signal: killed before it served"}},
		{"B106 prints a line", sh("prints", "echo hello; sleep 600"), []string{`it wrote "hello" to standard output, where only the handshake may stand`}},
		{"B106 prints a word", sh("word", "printf hello; exit 1"), []string{`it wrote "hello" to standard output`}},
		{"B106 prints before the handshake", sh("before", "printf 'hi 1|1|unix|/x|grpc|\n'; sleep 600"), []string{`it wrote "hi 1|1|unix|/x|grpc|" to`}},
		{"B106 is silent", sh("silent", "echo thinking >&2; sleep 600"), []string{slow, "its last words were: thinking"}},
		{"is silent on its socket", sh("mute", "exec "+pluginPath+" mute"), []string{slow}},
		{"has no socket", sh("nowhere", "echo '1|1|unix|"+dir+"/none|grpc|'; sleep 600"), []string{"no such file or directory"}},
		{"is too new", sh("new", "echo '1|99|unix|/x|grpc|'; sleep 600"), []string{
			"it speaks version 99 of the plugin protocol, and this Usher speaks version 1", "rebuild the plugin",
		}},
		{"speaks another protocol", sh("netrpc", "echo '1|1|unix|/x|netrpc|'; sleep 600"), []string{`unsupported plugin protocol "netrpc"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := pluginhost.Spec{Name: "fair", Path: tc.path, StartTimeout: patience}
			if tc.want[0] == slow {
				spec.StartTimeout = 3 * time.Second
			}
			_, err := pluginhost.StartImpatient(t.Context(), spec, newLogs(t).logger)
			if err == nil {
				t.Fatal("started")
			}
			for _, want := range append(tc.want, "start plugin fair ("+tc.path+")") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
			if strings.Contains(tc.path, dir+"/") {
				gone(t, tc.path)
			}
		})
	}
}

// gone waits until no process has a word in its command line.
func gone(t *testing.T, word string) {
	t.Helper()
	eventually(t, func() error {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return err
		}
		for _, f := range files {
			if text, _ := os.ReadFile(f); strings.Contains(string(text), word) { // it may have ended
				return fmt.Errorf("%s is left: %q", f, text)
			}
		}
		return nil
	})
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "silent")
	executable(t, path, "#!/bin/sh\nsleep 600\n")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	spec := pluginhost.Spec{Name: "fair", Path: path, StartTimeout: time.Hour}
	_, err := pluginhost.StartImpatient(ctx, spec, newLogs(t).logger)
	if err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	gone(t, path)
	if _, err := pluginhost.StartImpatient(ctx, testSpec(), newLogs(t).logger); err == nil {
		t.Error("started in a context that had ended")
	}
}

func TestPluginGetsOnlyTheEnvironmentItWasGiven_B95(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "env")
	executable(t, path, "#!/bin/sh\n/usr/bin/env | /usr/bin/cut -d= -f1 | /usr/bin/sort | /usr/bin/tr '\\n' ' ' >&2\n")
	spec := pluginhost.Spec{Name: "fair", Path: path, Env: []string{"MINE=1"}, StartTimeout: patience}
	_, err := pluginhost.StartImpatient(t.Context(), spec, newLogs(t).logger)
	const want = "MINE PLUGIN_MAX_PORT PLUGIN_MIN_PORT PLUGIN_PROTOCOL_VERSIONS PLUGIN_UNIX_SOCKET_DIR PWD USHER_LIFELINE USHER_POLICY_PLUGIN"
	if err == nil || !strings.HasSuffix(strings.ReplaceAll(strings.ReplaceAll(err.Error(), "SHLVL ", ""), " _", ""), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestKeyIsEqualForEqualSpecs(t *testing.T) {
	t.Parallel()
	one, two := testSpec(), testSpec()
	one.Env, two.Env = []string{"PASSWORD=secret"}, []string{"PASSWORD=secret"}
	if one.Key() != two.Key() {
		t.Error("equal specs have different keys")
	}
	two.Env = []string{"PASSWORD=other"}
	if one.Key() == two.Key() {
		t.Error("different specs have equal keys")
	}
	if strings.Contains(one.Key(), "secret") {
		t.Error("the key reveals the environment")
	}
}

package pluginhost_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// pluginPath is the executable of internal/testplugin.
var pluginPath string

func TestMain(m *testing.M) {
	if os.Getenv(hostEnv) != "" {
		hostMain()
		return
	}
	dir, err := os.MkdirTemp("", "pluginhost")
	if err == nil {
		err = prepare(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/usherproxy/usher/internal/pluginhost.spawner"), // lives as long as its process
		goleak.Cleanup(func(code int) { os.Exit(cleanUp(dir, code)) }),
	)
}

// prepare builds the plugin, and makes a directory for the sockets.
func prepare(dir string) error {
	pluginPath = filepath.Join(dir, "testplugin")
	out, err := exec.Command("go", "build", "-o", pluginPath, "./internal/testplugin").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the test plugin: %w\n%s", err, out)
	}
	tmp := filepath.Join(dir, "tmp")
	if err := errors.Join(os.Mkdir(tmp, 0o711), os.Chmod(dir, 0o711)); err != nil { // plugins of other users pass
		return err
	}
	return os.Setenv("TMPDIR", tmp)
}

// executable writes a file that can be executed. Nothing is forked meanwhile: a
// child would hold the file open for a moment, and what is open for writing cannot
// be executed.
func executable(t testing.TB, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// cleanUp reports sockets that are left, and returns the exit code.
func cleanUp(dir string, code int) int {
	left, err := filepath.Glob(filepath.Join(dir, "tmp", "plugin-dir*"))
	if err != nil || len(left) > 0 {
		fmt.Fprintln(os.Stderr, "sockets are left:", left, err)
		code = max(code, 1)
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

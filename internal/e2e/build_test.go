package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// root is the repository.
const root = "../.."

// buildDir holds what the tests build. It goes with the tests.
var buildDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "usher-e2e")
	if err != nil {
		panic(err)
	}
	buildDir = dir
	code := m.Run()
	for _, dir := range releasedDirs {
		_ = os.RemoveAll(dir) // it is the go command's, who would only look for it again
	}
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// buildUsher builds the binary once for all tests.
var buildUsher = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "usher")
	return path, goBuild(root, path, "./cmd/usher")
})

// goBuild builds a package of the module in dir.
func goBuild(dir, output string, args ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-o", output}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %v: %w\n%s", args, err, out)
	}
	return nil
}

// usherBinary returns the path of the binary.
func usherBinary(t *testing.T) string {
	t.Helper()
	path, err := buildUsher()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every default and example plugin passes the conformance checks as a process,
// and its report is in the log of the test.
func TestAllPluginsKeepTheContract(t *testing.T) {
	t.Parallel()
	usher := usherBinary(t)
	for name, args := range map[string][]string{
		"keys":       {usher, "policy-plugin", "--policy", "keys"},
		"fifo":       {usher, "policy-plugin", "--policy", "fifo", "--scopes"},
		"slots":      {example(t, "slots")},
		"residency":  {example(t, "residency")},
		"cheapest":   {example(t, "cheapest"), "--config", `{"prices": {"gpt-4o": {"input": 2.5, "output": 10}}}`},
		"fairshare":  {example(t, "fairshare"), "--config", `{"max": 3, "weights": {"research": 2}}`},
		"percaller":  {python(t), "--start-timeout", "60s"},
		"percaller1": {python(t), "--start-timeout", "60s", "--config", `{"max": 1}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(usher, append([]string{"plugin", "test", "--calls", "200"}, args...)...)
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil || !strings.Contains(string(out), "\nPASS: ") {
				t.Errorf("usher plugin test: %v", err)
			}
		})
	}
}

// example builds an example policy.
func example(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := goBuild(root, path, "./examples/"+name); err != nil {
		t.Fatal(err)
	}
	return path
}

// python returns the example policy in Python, with the code of the protocol as
// protoc makes it of the proto file now.
func python(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	plugin := filepath.Join(dir, "examples", "python")
	if err := os.CopyFS(plugin, os.DirFS(filepath.Join(root, "examples", "python"))); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "sdk", "proto"), os.DirFS(filepath.Join(root, "sdk", "proto"))); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(plugin, "generated")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(plugin, "generate.sh")).CombinedOutput(); err != nil {
		t.Fatalf("generate.sh: %v; install what it needs with: make python\n%s", err, out)
	}
	if out, err := exec.Command("/usr/bin/python3", "-c", "import grpc, google.protobuf").CombinedOutput(); err != nil {
		t.Fatalf("%v; install it with: make python\n%s", err, out)
	}
	return filepath.Join(plugin, "percaller")
}

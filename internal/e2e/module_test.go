package e2e_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// modulePath is the path of this module.
const modulePath = "github.com/usherproxy/usher"

// released serves this checkout as the latest release of the module, as a file
// proxy does, so that commands work as authors of policies type them. It
// returns the environment for that.
var released = sync.OnceValues(func() ([]string, error) {
	version := fmt.Sprintf("v0.1.%d", time.Now().Unix()) // a version names one content for ever
	dir := filepath.Join(buildDir, "proxy", filepath.FromSlash(modulePath), "@v")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	content, err := zipModule(modulePath + "@" + version)
	if err != nil {
		return nil, err
	}
	for name, b := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".mod": gomod, version + ".zip": content,
		version + ".info": fmt.Appendf(nil, `{"Version":%q,"Time":%q}`, version, time.Now().UTC().Format(time.RFC3339)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return nil, err
		}
	}
	out, err := exec.Command("go", "env", "GOPROXY", "GOMODCACHE").Output()
	if err != nil {
		return nil, err
	}
	words := strings.Fields(string(out))
	releasedDirs = []string{
		filepath.Join(words[1], filepath.FromSlash(modulePath)+"@"+version),
		filepath.Join(words[1], "cache/download", filepath.FromSlash(modulePath), "@v"),
	}
	return []string{
		"GOPROXY=file://" + filepath.Join(buildDir, "proxy") + "," + words[0],
		"GONOSUMDB=" + modulePath, "GOFLAGS=-modcacherw",
	}, nil
})

// releasedDirs are where the go command keeps what released has served.
var releasedDirs []string

// zipModule returns the files of the checkout as a module proxy would.
func zipModule(prefix string) ([]byte, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) || inOtherModule(name) {
			continue
		}
		if err != nil {
			return nil, err
		}
		f, err := w.Create(prefix + "/" + name)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// inOtherModule tells whether a file belongs to a module below this one.
func inOtherModule(name string) bool {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(root, dir, "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// author is somebody in an empty folder, with nothing but Go and, at first, the
// binary under test.
type author struct {
	dir string
	env []string
}

func newAuthor(t *testing.T) *author {
	t.Helper()
	env, err := released()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(usherBinary(t), filepath.Join(bin, "usher")); err != nil {
		t.Fatal(err)
	}
	a := &author{dir: filepath.Join(dir, "work"), env: append(os.Environ(), env...)}
	a.env = append(a.env, "PATH="+bin+":"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	if err := os.Mkdir(a.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return a
}

// try types commands into a shell and returns what they print.
func (a *author) try(script string) (string, error) {
	cmd := exec.Command("sh", "-euc", script)
	cmd.Dir, cmd.Env = a.dir, a.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// What a command leaves in the background has its output, too.
	out, err := os.CreateTemp(filepath.Dir(a.dir), "output")
	if err != nil {
		return "", err
	}
	defer func() { _ = out.Close() }() // it goes with its folder
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	text, readErr := os.ReadFile(out.Name())
	return string(text), errors.Join(err, readErr)
}

// do is try for commands that must succeed.
func (a *author) do(t *testing.T, script string) string {
	t.Helper()
	out, err := a.try(script)
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

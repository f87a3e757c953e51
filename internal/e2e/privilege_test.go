package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A plugin gets the environment, the folder and the rights that its block
// lists, and a socket that nobody else can reach.
func TestAPluginGetsWhatItsBlockListsAlone(t *testing.T) {
	t.Parallel()
	p := startProvider(t, "key k1 sk-e2e-one\nkey k2 sk-e2e-two")
	u, path, sum := newUsher(t, setup{}), residency(t), checksumOf(t, residency(t))
	u.env = append(u.env, append([]string{"E2E_SECRET=none-of-its-business"}, keyEnv...)...)
	work := filepath.Join(u.dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	block := "checksum sha256:" + sum + "\nworkdir " + work + "\nenv GREETING {env.E2E_KEY_1}\nenv EMPTY \"\""
	uid := uint32(os.Geteuid())
	if uid == 0 { // who is root can make it somebody else
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseUint(nobody.Uid, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		uid = uint32(n)
		block += "\nuser nobody"
		for _, dir := range []string{u.dir, filepath.Join(u.dir, "tmp")} { // on the way to its socket
			if err := os.Chmod(dir, 0o711); err != nil {
				t.Fatal(err)
			}
		}
	}
	u.write(t, setup{
		global: "usher {\nplugin residency " + path + " {\n" + block + "\n}\n}",
		usher:  regions(p) + "select keys\nselect residency {\nregion eu\n}",
	})
	u.run(t)
	var plugin process
	for _, child := range u.plugins() {
		if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", child.pid)); err == nil && cwd == work {
			plugin = child
		}
	}
	if plugin.pid == 0 {
		t.Fatalf("no plugin runs in %s", work)
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", plugin.pid))
	if err != nil {
		t.Fatal(err)
	}
	env := make(map[string]string)
	for line := range strings.SplitSeq(strings.TrimRight(string(raw), "\x00"), "\x00") {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	if env["GREETING"] != "sk-e2e-one" {
		t.Errorf("GREETING is %q", env["GREETING"])
	}
	if _, ok := env["EMPTY"]; !ok {
		t.Error("EMPTY is not set")
	}
	// Those are documented in docs/plugin-protocol.md.
	known := []string{
		"GREETING", "EMPTY", "USHER_POLICY_PLUGIN", "USHER_LIFELINE",
		"PLUGIN_UNIX_SOCKET_DIR", "PLUGIN_PROTOCOL_VERSIONS", "PLUGIN_MIN_PORT", "PLUGIN_MAX_PORT",
	}
	for name := range env {
		if !slices.Contains(known, name) {
			t.Errorf("its environment has %s=%q", name, env[name])
		}
	}
	sockets, err := os.Stat(env["PLUGIN_UNIX_SOCKET_DIR"])
	if err != nil {
		t.Fatal(err)
	}
	if owner := sockets.Sys().(*syscall.Stat_t).Uid; sockets.Mode().Perm() != 0o700 || owner != uid {
		t.Errorf("its socket is in a directory of mode %o that belongs to user %d, want 700 and %d", sockets.Mode().Perm(), owner, uid)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", plugin.pid))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("Uid:\t%d\t%d\t%d\t%d\n", uid, uid, uid, uid); !bytes.Contains(status, []byte(want)) {
		t.Errorf("it does not run as user %d:\n%s", uid, status)
	}
}

// Another executable than the pinned one is refused, with both checksums and
// the line of the Caddyfile.
func TestAnotherExecutableThanThePinnedOneIsRefused(t *testing.T) {
	t.Parallel()
	path := residency(t)
	wrong := strings.Repeat("ab", sha256.Size)
	u := newUsher(t, setup{
		global: "usher {\nplugin residency " + path + " {\nchecksum sha256:" + wrong + "\n}\n}",
		usher:  "provider openai http://127.0.0.1:1 {\nkey k1 {env.E2E_KEY_1}\n}\nmodel gpt-4o openai\nselect residency",
		env:    keyEnv,
	})
	out, err := u.command("validate", "--config", u.caddyfile()).CombinedOutput()
	if err == nil {
		t.Errorf("validate accepts it: %s", out)
	}
	for _, want := range []string{"Caddyfile:", wrong, checksumOf(t, path), path} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the error does not name %s: %s", want, out)
		}
	}
}

// checksumOf returns the SHA-256 of a file, in hexadecimal.
func checksumOf(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

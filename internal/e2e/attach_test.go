package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// byHand starts a plugin as one does who debugs it, and returns when it
// listens. It ends with the test.
func byHand(t *testing.T, path, socket string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path)
	cmd.Env = []string{"USHER_ATTACH=" + socket}
	said := new(output)
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	eventually(t, startTimeout, func() error {
		if !strings.Contains(said.String(), "attach "+socket) {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	})
	return cmd
}

// A plugin that was started by hand is used through a Caddyfile. What is wrong
// is said when nobody listens, while it is away nobody waits in vain, and when
// it is there again it serves.
func TestAPluginStartedByHandIsAttached(t *testing.T) {
	t.Parallel()
	p := startProvider(t, "key k1 sk-e2e-one\nkey k2 sk-e2e-two")
	plugin := residency(t)
	u := newUsher(t, setup{}) // for its folder
	socket := filepath.Join(u.dir, "plugin.sock")
	u.env = append(u.env, keyEnv...)
	u.write(t, setup{
		global: "usher {\nplugin residency " + plugin + " {\nattach " + socket + "\n}\n}",
		usher:  regions(p) + "select keys\nselect residency {\nregion eu\n}",
	})

	out, err := u.command("validate", "--config", u.caddyfile()).CombinedOutput()
	want := "no plugin listens there; start it with USHER_ATTACH=" + socket
	if err == nil || !bytes.Contains(out, []byte(want)) || !bytes.Contains(out, []byte("Caddyfile:")) {
		t.Errorf("with nobody to attach to, validate ends with %v and says %s; want %q with the line", err, out, want)
	}

	first := byHand(t, plugin, socket)
	u.run(t)
	c := newClient(u.url)
	chat := func() answer {
		ctx, cancel := context.WithTimeout(t.Context(), longTime)
		defer cancel()
		return c.chat(ctx, ask{whole: true})
	}
	decided := func() error {
		a := chat()
		if err := a.ok(); err != nil || !strings.Contains(a.body, "key=k2 ") {
			return errors.Join(fmt.Errorf("want an answer with key k2, got %s", a.body), err)
		}
		return nil
	}
	if err := decided(); err != nil {
		t.Error(err)
	}

	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was killed
	if a := chat(); a.status != http.StatusServiceUnavailable || a.header.Get("X-Usher-Reason") != "plugin_unavailable" {
		t.Errorf("while the plugin is away: status %d, reason %q, error %v", a.status, a.header.Get("X-Usher-Reason"), a.err)
	}
	if log := u.log.String(); !strings.Contains(log, want) {
		t.Errorf("the log does not say %q", want)
	}

	second := byHand(t, plugin, socket)
	eventually(t, longTime, decided)

	u.signal(t, syscall.SIGTERM)
	<-u.ended
	if err := second.Process.Signal(os.Interrupt); err != nil { // it has outlived its host
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil {
		t.Errorf("interrupted, it ends with %v", err)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("its socket is left")
	}
}

package caddymodule_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Requests of the old configuration run and wait on, and those of the new one
// wait behind them: both share the process of the policies, and its limits.
func TestReloadLosesNeitherRequestsNorPlaces(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()), chats())
	usher := up.providerOf(key(1, "limit concurrency 1")) + model(up)
	st := serve(t, setup{usher: usher})
	body := func(tag string) string { return `{"model":"m","user":"` + tag + `"}` }
	holder := st.begin(body("holder"))
	after(t, g.arrived, "the request that holds the key")
	waiter := st.begin(body("old"))
	st.await(1, 1)
	before := st.builtin()
	if err := st.load(setup{usher: usher + "attempts 2\n"}); err != nil {
		t.Fatal(err)
	}
	later := st.begin(body("new"))
	eventually(t, func() error {
		select {
		case r := <-later: // a server that ends may reset a new connection
			later = st.begin(body("new"))
			return errors.New(r.Status)
		default:
		}
		if n := st.builtin().Waiting; n != 2 {
			return fmt.Errorf("%d wait, want 2", n)
		}
		return nil
	})
	g.open()
	for _, r := range []*reply{after(t, holder, "holder"), after(t, waiter, "waiter"), after(t, later, "later")} {
		if r.StatusCode != http.StatusOK {
			t.Errorf("status %s: %s", r.Status, r.body)
		}
	}
	var order []string
	for _, h := range up.expect(t, 3) {
		order = append(order, h.body)
	}
	if order[1] != body("old") || order[2] != body("new") {
		t.Errorf("order %q, want the old request before the new one", order)
	}
	if now := st.builtin(); now.PID != before.PID {
		t.Errorf("the plugin was started again: %d, before %d", now.PID, before.PID)
	}
}

// A configuration that cannot start leaves nothing behind, however often it is
// tried, and the old one goes on.
func TestConfigurationsThatFailLeaveNothing_B101(t *testing.T) {
	up := newUpstream(t, chats())
	good := setup{usher: up.provider() + model(up)}
	st := serve(t, good)
	held := func() (processes, files, goroutines int) {
		children, err := filepath.Glob("/proc/self/task/*/children")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range children {
			text, _ := os.ReadFile(c) // the thread may have ended
			processes += len(strings.Fields(string(text)))
		}
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return processes, len(open), runtime.NumGoroutine()
	}
	fails := func(i int) {
		t.Helper()
		for name, bad := range map[string]setup{
			"a policy of the wrong kind": {global: plugins(t, "", "picky", "doorman"), usher: good.usher + "select doorman\n"},
			"another handler":            {global: plugins(t, "", "picky"), usher: good.usher + "select picky\n", site: "file_server {\nfs none\n}\n"},
			"a plugin that is not there": {global: "usher {\nplugin x /none\n}\n", usher: good.usher + "select x\n"},
		} {
			if err := st.load(bad); err == nil {
				t.Errorf("%d: %s was loaded", i, name)
			}
		}
	}
	fails(0) // fills pools
	processes, open, goroutines := held()
	for i := range 5 {
		fails(i + 1)
	}
	const slack = 10 // connections of Caddy's own admin API, and the like
	eventually(t, func() error {
		if p, f, g := held(); p > processes || f > open+slack || g > goroutines+slack {
			return fmt.Errorf("%d processes, %d files and %d goroutines; before %d, %d and %d", p, f, g, processes, open, goroutines)
		}
		return nil
	})
	eventually(t, func() error { // a server that ends may reset a connection
		r, err := st.send(http.MethodPost, chatPath, chatBody)
		if err == nil && r.StatusCode != http.StatusOK {
			err = errors.New(r.Status)
		}
		return err
	})
}

// builtin is the state of the default policies.
func (st *site) builtin() pluginStatus {
	st.t.Helper()
	for _, p := range st.status() {
		if p.Name == "builtin" {
			return p
		}
	}
	st.t.Fatal("the default policies do not run")
	return pluginStatus{}
}

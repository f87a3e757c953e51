package caddymodule_test

import (
	"errors"
	"fmt"
	"net/http"
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

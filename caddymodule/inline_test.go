package caddymodule_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// inline is the global option that runs policies in this process.
func inline(names ...string) string {
	return "usher {\ninline " + strings.Join(names, " ") + "\n}\n"
}

// Built-in policies do the same in this process as in one of their own, and a
// reload from the one to the other loses no request.
func TestInlinePoliciesDecideLikeOthers(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()), chats())
	usher := up.providerOf(key(1, "limit concurrency 1")) + model(up)
	st := serve(t, setup{global: inline("keys", "fifo"), usher: usher})
	eventually(t, func() error { // those of the test before end by and by
		if s := st.status(); len(s) != 1 || s[0].Name != "inline" || s[0].PID != os.Getpid() {
			return fmt.Errorf("plugins %+v, want those of this process only", s)
		}
		return nil
	})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request that holds the key")
	waiter := st.begin(chatBody)
	st.await(1, 1)
	if err := st.load(setup{usher: usher}); err != nil { // the old ones run on where they are
		t.Fatal(err)
	}
	up.expect(t, 1)
	g.open()
	for _, r := range []*reply{after(t, holder, "holder"), after(t, waiter, "waiter")} {
		if r.StatusCode != http.StatusOK {
			t.Errorf("status %s: %s", r.Status, r.body)
		}
	}
	if r := st.ask(chatBody, http.StatusOK); len(st.decision(r.id()).Selections) != 1 {
		t.Errorf("decision %+v", st.decision(r.id()))
	}
	eventually(t, func() error {
		s := st.status()
		if len(s) != 1 || s[0].Name != "builtin" || s[0].PID == os.Getpid() {
			return fmt.Errorf("plugins %+v, want those of the process only", s)
		}
		return nil
	})
}

// A site may have the one policy inline and the other not.
func TestOneInlinePolicyOfTwo(t *testing.T) {
	up := newUpstream(t, answers(http.StatusUnauthorized, failure("", "invalid_api_key")), chats())
	st := serve(t, setup{global: inline("fifo"), usher: up.providerOf(key(1)+key(2)) + model(up) + inOrder})
	r := st.ask(chatBody, http.StatusOK)
	if d := st.decision(r.id()); len(d.Attempts) != 2 || len(d.Admissions) != 2 {
		t.Errorf("decision %+v, want a failover", d)
	}
	var names []string
	for _, p := range st.status() {
		names = append(names, p.Name)
	}
	if fmt.Sprint(names) != "[builtin inline]" {
		t.Errorf("plugins %q", names)
	}
	eventually(t, func() error { // the lesson arrives in its time
		if !strings.Contains(st.log(), `"logger":"usher.plugin.inline"`) {
			return errors.New("the log has nothing of the policies in this process")
		}
		return nil
	})
}

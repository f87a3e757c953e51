package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A plugin that was built again takes over at a reload: what runs goes on, what
// waits keeps its place, and its limit holds.
func TestARebuiltPluginIsTakenByAReload(t *testing.T) {
	t.Parallel()
	p := startProvider(t, twoKeys(4, 4, "tokens 100000\ntokens_per_second 100"))
	plugin := example(t, "fairshare")
	u := startUsher(t, setup{
		global: "usher {\nplugin fairshare " + plugin + "\n}",
		usher: "provider openai " + p.url + " {\nkey k1 {env.E2E_KEY_1}\nkey k2 {env.E2E_KEY_2} {\npriority 1\n}\n}\nmodel gpt-4o openai\n" +
			"select keys\nadmit fairshare {\nmax 2\n}",
		env: keyEnv,
	})
	c := newClient(u.url)
	var running, waiting []*pending
	for i := range 2 {
		running = append(running, c.begin(t, ask{tag: fmt.Sprintf("runs-%d", i)}))
		p.running(t, longTime, i+1)
	}
	for i := range 4 {
		waiting = append(waiting, c.begin(t, ask{tag: fmt.Sprintf("waits-%d", i), tokens: 3}))
		u.waiting(t, i+1)
	}
	old := named(u.plugins(), plugin)
	if len(old) != 1 {
		t.Fatalf("%d processes of the plugin run, want 1", len(old))
	}

	if out, err := exec.Command("sh", "-euc", `cp "$1" "$1.new" && mv "$1.new" "$1"`, "sh", plugin).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	u.reloadFile(t, "--force")
	allGone(t, longTime, old...)
	if now := named(u.plugins(), plugin); len(now) != 1 {
		t.Errorf("%d processes of the plugin run after the reload, want 1", len(now))
	}
	u.waiting(t, len(waiting))
	if s := p.stats(t); s.InFlight != 2 || s.Requests != 2 {
		t.Errorf("after the reload the provider runs %d requests, and got %d, want 2 and 2", s.InFlight, s.Requests)
	}
	for _, r := range running {
		r.leave()
	}
	for i, w := range waiting {
		if err := w.wait(t, longTime).ok(); err != nil {
			t.Errorf("waiting request %d: %v", i, err)
		}
	}
	if got := len(p.started(t)); got != 6 {
		t.Errorf("the provider got %d requests, want 6", got)
	}
}

// named returns the processes that run an executable.
func named(all []process, path string) []process {
	var found []process
	for _, p := range all {
		if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)); err == nil && strings.HasPrefix(string(cmdline), path+"\x00") {
			found = append(found, p)
		}
	}
	return found
}

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"
)

func TestReloadsUnderLoadBreakNothing_B99(t *testing.T) {
	t.Parallel()
	const reloads = 5
	p := startProvider(t, twoKeys(2, 2, "latency 20ms\ntokens 8\ntokens_per_second 100"))
	version := func(i int) setup {
		return setup{usher: p.upstream(2, 2, fmt.Sprintf("header_down X-Version %d", i)), env: keyEnv}
	}
	u := startUsher(t, version(0))
	c := newClient(u.url)
	// A reload closes idle connections, and a client who sends a request on
	// one at that moment cannot tell whether it was read.
	c.http.Transport = &http.Transport{DisableKeepAlives: true}
	before := pids(u.plugins())
	l := startLoad(t, c, 16)
	p.running(t, longTime, 4)
	for i := range reloads {
		time.Sleep(500 * time.Millisecond)
		u.reload(t, version(i+1))
		ctx, cancel := context.WithTimeout(t.Context(), longTime)
		a := c.chat(ctx, ask{tag: "reloaded"})
		cancel()
		if got := a.header.Get("X-Version"); a.ok() != nil || got != strconv.Itoa(i+1) {
			t.Errorf("after reload %d: error %v, X-Version %q", i+1, a.ok(), got)
		}
	}
	l.endReloaded(t, p)
	p.limitsKept(t)
	if after := pids(u.plugins()); !slices.Equal(before, after) {
		t.Errorf("the policy processes were %v and are %v", before, after)
	}
}

// A change of the limits holds for the requests that wait already.
func TestAReloadThatRaisesALimitIsFeltAtOnce(t *testing.T) {
	t.Parallel()
	p := startProvider(t, twoKeys(10, 10, "tokens 100000\ntokens_per_second 100"))
	u := startUsher(t, setup{usher: p.upstream(1, 1), env: keyEnv})
	c := newClient(u.url)
	for i := range 2 {
		c.begin(t, ask{tag: "runs"})
		p.running(t, longTime, i+1)
	}
	u.reload(t, setup{usher: p.upstream(2, 1), env: keyEnv})
	c.begin(t, ask{tag: "new"})
	p.running(t, longTime, 3)
}

// What runs under the old configuration counts for the limits of the new one.
func TestAReloadForgetsNoRunningRequest(t *testing.T) {
	t.Parallel()
	p := startProvider(t, twoKeys(2, 2, "tokens 100000\ntokens_per_second 100"))
	u := startUsher(t, setup{usher: p.upstream(1, 1), env: keyEnv})
	c := newClient(u.url)
	var running []*pending
	for i := range 2 {
		running = append(running, c.begin(t, ask{tag: "runs"}))
		p.running(t, longTime, i+1)
	}
	u.reload(t, setup{usher: p.upstream(1, 1, "header_down X-Version 2"), env: keyEnv})
	waits := c.begin(t, ask{tag: "waits", tokens: 3})
	u.waiting(t, 1)
	time.Sleep(time.Second) // enough for a mistake: to let it through
	if s := p.stats(t); s.InFlight != 2 || s.Requests != 2 {
		t.Errorf("after the reload the provider runs %d requests, and got %d, want 2 and 2", s.InFlight, s.Requests)
	}
	running[0].leave()
	if a := waits.wait(t, longTime); a.ok() != nil || a.header.Get("X-Version") != "2" {
		t.Errorf("error %v, header %v", a.ok(), a.header)
	}
}

package plugintool

import (
	"context"
	"syscall"
	"time"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/sdk/conformance"
)

// life returns the checks of how the process begins and ends.
func (e *Executable) life() []conformance.Check {
	in := func(check func(t conformance.T, p *pluginhost.Single)) func(conformance.T) {
		return func(t conformance.T) {
			p, err := e.start(t.Context())
			if err != nil {
				t.Fatalf("%v", err)
			}
			t.Cleanup(func() { p.End(0) })
			check(t, p)
		}
	}
	return []conformance.Check{
		{Name: "it ends when it is told to", Run: in(endsWhenTold)},
		{Name: "it ends when its host is gone", Run: in(endsWithItsHost)},
		{Name: "SIGTERM and SIGINT do not end it", Run: in(ignoresSignals)},
		{Name: "two processes live side by side", Run: in(func(t conformance.T, p *pluginhost.Single) {
			in(func(t conformance.T, other *pluginhost.Single) {
				answers(t, p)
				answers(t, other)
			})(t)
		})},
	}
}

func endsWhenTold(t conformance.T, p *pluginhost.Single) {
	if !p.End(endTimeout) {
		t.Errorf("it had to be killed %s after the call of plugin.GRPCController/Shutdown", endTimeout)
	}
}

// lifelineTimeout is how long a plugin may live without its host.
const lifelineTimeout = 10 * time.Second

func endsWithItsHost(t conformance.T, p *pluginhost.Single) {
	p.CutLifeline()
	if !p.Ended(lifelineTimeout) {
		t.Errorf("it lives %s after its standard input has ended, which is how it hears that its host is gone", lifelineTimeout)
	}
}

func ignoresSignals(t conformance.T, p *pluginhost.Single) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		if err := p.Signal(s); err != nil {
			t.Fatalf("send %s: %v", s, err)
		}
		if p.Ended(300 * time.Millisecond) {
			t.Fatalf("it ended by %s, which a service manager sends to all processes at once: its host ends it when it has drained", s)
		}
		answers(t, p)
	}
}

func answers(t conformance.T, p *pluginhost.Single) {
	ctx, cancel := context.WithTimeout(t.Context(), endTimeout)
	defer cancel()
	if _, err := p.Client().Info(ctx, "usher plugin test"); err != nil {
		t.Errorf("GetInfo: %v", err)
	}
}

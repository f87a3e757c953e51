package caddymodule_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/goleak"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/plugins/keys"
)

// TestMain runs the tests, or serves policies: Usher starts its own executable
// as the plugin, and here that is the test.
func TestMain(m *testing.M) {
	caddymodule.RegisterBuiltIn(keys.New().Definition(), fifo.New().Definition())
	switch {
	case len(os.Args) > 1 && os.Args[1] == caddymodule.BuiltInCommand:
		caddymodule.ServeBuiltIn()
	case len(os.Args) > 2 && os.Args[1] == oddCommand:
		serveOdd(os.Args[2])
	default:
		os.Exit(runTests(m))
	}
}

// runTests also checks that nothing is left when Caddy has stopped.
func runTests(m *testing.M) int {
	time.Local = time.UTC // which explain shows
	spans = newCollector()
	for name, value := range spans.environment() {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	before := goleak.IgnoreCurrent()
	code := m.Run()
	// Another configuration, so that the admin API ends, too.
	if err := errors.Join(caddy.Load([]byte(`{"admin":{"disabled":true,"config":{"persist":false}}}`), true), caddy.Stop()); err != nil {
		fmt.Fprintln(os.Stderr, "stop Caddy:", err)
		return 1
	}
	for deadline := time.Now().Add(soon); caddymodule.InUse() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if caddymodule.InUse() {
		fmt.Fprintln(os.Stderr, "plugins are in use after Caddy has stopped")
		return 1
	}
	spans.Close()
	if err := leaks(before); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// leaks returns an error if goroutines are left, after some time to end.
func leaks(before goleak.Option) error {
	var err error
	for range 5 {
		err = goleak.Find(before,
			goleak.IgnoreAnyFunction("github.com/usherproxy/usher/internal/pluginhost.spawner"), // lives as long as the process
			goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.keepLockfileFresh"),      // ends within some seconds
		)
		if err == nil {
			break
		}
	}
	return err
}

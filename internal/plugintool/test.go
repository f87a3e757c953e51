package plugintool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/sdk/conformance"
	"github.com/usherproxy/usher/sdk/host"

	"github.com/usherproxy/usher/policy"
)

// A Test says what of an executable is to be tested.
type Test struct {
	// Policies are the policies to test; all if there are none.
	Policies []string

	// Config is the configuration to test with, a JSON object, or empty.
	Config string

	// Scopes is set for an admission policy that enforces the limits of the
	// scopes that requests carry.
	Scopes bool

	// Calls is how many calls are timed; none if it is 0.
	Calls int

	// Patience is how long a check waits for an answer; 0 for the usual time.
	// It holds for the whole process.
	Patience time.Duration
}

// ErrFailed tells that the plugin does not keep the contract. The report says
// how.
var ErrFailed = errors.New("the plugin does not keep the contract")

// Test tests the executable and prints a report. It returns [ErrFailed] if a
// check failed, and another error if the plugin cannot be tested at all.
func (e *Executable) Test(ctx context.Context, out io.Writer, test Test) error {
	if test.Patience > 0 {
		conformance.Patience = test.Patience
	}
	r := &report{out: out}
	begin := time.Now()
	p, err := e.start(ctx)
	if err != nil {
		return err
	}
	defer p.End(endTimeout)
	info := p.Info()
	r.printf("plugin %s %s, protocol version %d, serves after %s\n", info.Name, info.Version,
		host.Handshake.ProtocolVersion, time.Since(begin).Round(time.Millisecond))
	names := test.Policies
	if len(names) == 0 {
		names = info.Policies
	}
	for _, name := range names {
		if !slices.Contains(info.Policies, name) {
			return fmt.Errorf("plugin %s has no policy %q; it has %q", info.Name, name, info.Policies)
		}
		if err := e.testPolicy(ctx, r, p, name, test); err != nil {
			return err
		}
	}
	r.printf("\nthe process\n")
	r.suite(ctx, conformance.Suite{Name: "life", Checks: e.life()})
	return r.end()
}

func (e *Executable) testPolicy(ctx context.Context, r *report, p *pluginhost.Single, name string, test Test) error {
	kinds, err := configureOnce(ctx, p.Client(), name, test.Config)
	if err != nil {
		return fmt.Errorf("configure policy %s (try --config): %w", name, err)
	}
	if !json.Valid([]byte(test.Config)) && test.Config != "" {
		return fmt.Errorf("the configuration is not a JSON object: %s", test.Config)
	}
	r.printf("\npolicy %s: %s", name, orNone(kindWords(kinds)))
	if test.Config != "" {
		r.printf(", with %s", test.Config)
	}
	r.printf("\n")
	x := conformance.Target{
		Connect: func(conformance.T) *host.Client { return p.Client() },
		Policy:  name, Config: test.Config,
	}
	offered := p.Client().Instance(name, kinds)
	for _, s := range x.Suites(offered) {
		r.suite(ctx, s)
	}
	if test.Scopes && offered.Admission != nil {
		r.suite(ctx, conformance.Suite{Name: "scopes", Checks: conformance.Scopes(func(t conformance.T) policy.Admitter {
			return x.Build(t).Admission
		})})
	}
	if test.Calls > 0 {
		r.latency(ctx, x, offered, test.Calls)
	}
	return nil
}

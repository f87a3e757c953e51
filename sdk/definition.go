package sdk

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/usherproxy/usher/policy"
)

// Policies is what one instance of a plugin offers. Nil fields are not offered.
type Policies struct {
	// Admission decides whether requests may start. It should implement
	// [policy.Restorer] if its leases live in memory.
	Admission policy.Admitter

	// Selection decides which candidates may serve requests.
	Selection policy.Selector

	// Observer hears how attempts ended.
	Observer policy.Observer

	// Operable answers operators. The default is the first of Selection,
	// Admission and Observer that implements it.
	Operable policy.Operable

	// Close, if set, is called once when the instance is not used any more,
	// after its last call has ended. It should return within a second.
	Close func(ctx context.Context) error
}

// A Definition is a policy that a process can build instances of.
type Definition struct {
	name     string
	options  []Option
	validate func(config json.RawMessage) []Diagnostic
	build    func(ctx context.Context, config json.RawMessage) (Policies, []Diagnostic)
}

// Name returns the name under which configurations refer to the policy.
func (d Definition) Name() string { return d.name }

// Validate checks a configuration, a JSON object, without any side effect. It
// returns nothing if the configuration is right.
func (d Definition) Validate(config json.RawMessage) []Diagnostic { return d.validate(config) }

// Build builds an instance in this process. The caller owns it and calls its
// Close. The context ends when the process is about to end.
func (d Definition) Build(ctx context.Context, config json.RawMessage) (Policies, error) {
	p, diagnostics := d.build(ctx, config)
	return p, diagnosticsError(diagnostics)
}

// Define describes a policy that is configured by a C, which must be a struct
// that survives a round trip through JSON.
//
// A configuration is decoded over a copy of defaults: blocks and maps are merged
// with the default, lists replace it, and null keeps it. An option that C does
// not have is an error. If C has a method Validate() error, it is called
// afterwards; it must have no side effect, and should name what is wrong with
// [OptionError]. Then build makes an instance. The context of build ends when
// the process is about to end.
//
// If C has a method Probe() error, a configuration that is only to be validated, and
// that Validate finds nothing wrong with, is probed, too. Probe may look at what
// the configuration names, such as a database, for 2 seconds at most. It changes nothing,
// and reports only what is wrong for sure: what cannot be reached from here
// may be right. It is not called before build, so that a process that is started again
// does not depend on it.
func Define[C any](name string, defaults C, build func(ctx context.Context, config C) (Policies, error)) Definition {
	return Definition{
		name:    name,
		options: describe(defaults),
		validate: func(raw json.RawMessage) []Diagnostic {
			config, diagnostics := decode(defaults, raw)
			if p, ok := any(&config).(interface{ Probe() error }); ok && len(diagnostics) == 0 {
				diagnostics = diagnose(callProbe(p))
			}
			return diagnostics
		},
		build: func(ctx context.Context, raw json.RawMessage) (Policies, []Diagnostic) {
			config, diagnostics := decode(defaults, raw)
			if len(diagnostics) > 0 {
				return Policies{}, diagnostics
			}
			p, err := build(ctx, config)
			if err == nil && p.Admission == nil && p.Selection == nil && p.Observer == nil {
				err = errors.New("the plugin offers no policy")
			}
			p.Operable = p.operable()
			return p, diagnose(err)
		},
	}
}

func callProbe(p interface{ Probe() error }) (err error) {
	defer recoverTo(&err)
	return p.Probe()
}

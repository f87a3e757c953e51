package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// A Diagnostic tells one thing that is wrong with a configuration.
type Diagnostic struct {
	// Option is the name of the option, or empty if it is not about one.
	Option string

	// Message says what is wrong and what would be right.
	Message string
}

// Error returns the option and the message.
func (d Diagnostic) Error() string {
	if d.Option == "" {
		return d.Message
	}
	return d.Option + ": " + d.Message
}

// OptionError returns an error about one option of a configuration, for
// Validate methods and build functions. Several are joined by [errors.Join].
func OptionError(option, format string, args ...any) error {
	return Diagnostic{Option: option, Message: fmt.Sprintf(format, args...)}
}

// Duration is a [time.Duration] that is written as "1m30s" in a configuration.
type Duration time.Duration

// String returns d as "1m30s".
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText returns d as "1m30s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText accepts what [time.ParseDuration] does.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`%q is not a duration such as "1m30s"`, text)
	}
	*d = Duration(v)
	return nil
}

// decode returns raw, a JSON object, decoded over a deep copy of defaults, and
// all that is wrong with it.
func decode[C any](defaults C, raw json.RawMessage) (C, []Diagnostic) {
	var config C
	copied, err := json.Marshal(defaults)
	if err == nil {
		err = json.Unmarshal(copied, &config)
	}
	if err != nil {
		return config, diagnose(fmt.Errorf("copy defaults: %w", err))
	}
	var options map[string]json.RawMessage
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &options); err != nil {
			return config, diagnose(fmt.Errorf("configuration is not a JSON object: %w", err))
		}
	}
	var diagnostics []Diagnostic
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if err := decodeOption(&config, name, options[name]); err != nil {
			diagnostics = append(diagnostics, Diagnostic{name, optionMessage(config, name, err)})
		}
	}
	if v, ok := any(&config).(interface{ Validate() error }); ok && len(diagnostics) == 0 {
		diagnostics = diagnose(v.Validate())
	}
	return config, diagnostics
}

func decodeOption(config any, name string, value json.RawMessage) error {
	object, err := json.Marshal(map[string]json.RawMessage{name: value})
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(object))
	dec.DisallowUnknownFields()
	return dec.Decode(config)
}

// optionMessage says what a decoding error means to the writer of the
// configuration.
func optionMessage(config any, name string, err error) string {
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if field == fmt.Sprintf("%q", name) {
			return "no such option; there are: " + strings.Join(optionNames(config), ", ")
		}
		return "no such option " + field
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("wants %s, not a %s", typeWord(e.Type), e.Value)
	}
	return err.Error()
}

func optionNames(config any) []string {
	var names []string
	t := reflect.TypeOf(config)
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func typeWord(t reflect.Type) string {
	if t == reflect.TypeFor[Duration]() {
		return `a duration such as "1m30s"`
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a block"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// diagnose takes a joined error apart.
func diagnose(err error) []Diagnostic {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []Diagnostic
		for _, e := range joined.Unwrap() {
			all = append(all, diagnose(e)...)
		}
		return all
	}
	if d, ok := errors.AsType[Diagnostic](err); ok {
		return []Diagnostic{d}
	}
	return []Diagnostic{{Message: err.Error()}}
}

func diagnosticsError(diagnostics []Diagnostic) error {
	errs := make([]error, len(diagnostics))
	for i, d := range diagnostics {
		errs[i] = d
	}
	return errors.Join(errs...)
}

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
// all that is wrong with it. Blocks are decoded over the default block, lists
// replace the default list.
func decode[C any](defaults C, raw json.RawMessage) (C, []Diagnostic) {
	var config C
	options, err := object(raw)
	if err != nil {
		return config, diagnose(fmt.Errorf("configuration is not a JSON object: %w", err))
	}
	copied, err := json.Marshal(defaults)
	if err == nil {
		err = decodeDefaults(&config, copied, options)
	}
	if err != nil {
		return config, diagnose(fmt.Errorf("copy defaults: %w", err))
	}
	var diagnostics []Diagnostic
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if d, ok := decodeOption(&config, name, options[name]); !ok {
			diagnostics = append(diagnostics, d)
		}
	}
	if v, ok := any(&config).(interface{ Validate() error }); ok && len(diagnostics) == 0 {
		diagnostics = diagnose(callValidate(v))
	}
	return config, diagnostics
}

func callValidate(v interface{ Validate() error }) (err error) {
	defer recoverTo(&err)
	return v.Validate()
}

// decodeDefaults decodes those defaults that options do not set into config,
// and completes options with the defaults below them. A field is decoded only
// once: encoding/json would leave parts of the old value in the new one.
func decodeDefaults(config any, defaults json.RawMessage, options map[string]json.RawMessage) error {
	rest, err := object(defaults)
	if err != nil {
		return err
	}
	for name, value := range options {
		if string(value) == "null" {
			delete(options, name)
			continue
		}
		options[name] = merge(rest[name], value)
		delete(rest, name)
	}
	left, err := json.Marshal(rest)
	if err != nil {
		return err
	}
	return json.Unmarshal(left, config)
}

// merge returns value completed with what a default says below it.
func merge(preset, value json.RawMessage) json.RawMessage {
	under, err := object(preset)
	over, err2 := object(value)
	if err != nil || err2 != nil || under == nil || over == nil {
		return value
	}
	for name, v := range over {
		if string(v) != "null" {
			under[name] = merge(under[name], v)
		}
	}
	merged, err := json.Marshal(under)
	if err != nil {
		return value
	}
	return merged
}

// object returns the members of a JSON object, which may be absent.
func object(raw json.RawMessage) (members map[string]json.RawMessage, err error) {
	if len(raw) > 0 {
		err = json.Unmarshal(raw, &members)
	}
	return members, err
}

// decodeOption decodes one option into config, a pointer.
func decodeOption(config any, name string, value json.RawMessage) (Diagnostic, bool) {
	known, closed := optionNames(reflect.TypeOf(config))
	if closed && !slices.Contains(known, name) { // encoding/json would ignore its case
		return Diagnostic{name, "no such option; there are: " + strings.Join(known, ", ")}, false
	}
	one, err := json.Marshal(map[string]json.RawMessage{name: value})
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(one))
		dec.DisallowUnknownFields()
		err = dec.Decode(config)
	}
	if err == nil {
		return Diagnostic{}, true
	}
	return optionDiagnostic(name, err), false
}

// optionDiagnostic says what a decoding error means to the writer of the
// configuration.
func optionDiagnostic(name string, err error) Diagnostic {
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return Diagnostic{name, "no such option " + field}
	}
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return Diagnostic{name, err.Error()}
	}
	if strings.HasPrefix(e.Field, name+".") {
		name = e.Field
	}
	return Diagnostic{name, fmt.Sprintf("wants %s, not %s", typeWord(e.Type), valueWord(e.Value))}
}

// optionNames returns the names of the options of a configuration of type t,
// unless it takes any name because it is no struct.
func optionNames(t reflect.Type) (names []string, closed bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, ok := optionName(f); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, true
}

// valueWord says what was found where a typeWord was wanted.
func valueWord(value string) string {
	switch value {
	case "array":
		return "a list"
	case "object":
		return "a block"
	case "bool":
		return "true or false"
	}
	return "a " + value
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

// diagnose takes an error of [errors.Join] apart.
func diagnose(err error) []Diagnostic {
	if err == nil {
		return nil
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok && errors.Join(several.Unwrap()...).Error() == err.Error() {
		var all []Diagnostic
		for _, e := range several.Unwrap() {
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

package sdk

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// An Option describes one option of a configuration, for people.
type Option struct {
	// Name is the name, with dots between nested names.
	Name string

	// Type says in a few words what its value is.
	Type string

	// Default is the value that it has if it is left out, as JSON, or nil.
	Default json.RawMessage
}

// Options describes the options of the policy, by their names.
func (d Definition) Options() []Option { return slices.Clone(d.options) }

// describe returns the options of a configuration with the given defaults.
func describe(defaults any) []Option {
	v := reflect.ValueOf(defaults)
	options := describeStruct(nil, "", v)
	slices.SortFunc(options, func(a, b Option) int { return cmp.Compare(a.Name, b.Name) })
	return options
}

// describeStruct appends the options that the fields of v are, if it is a
// struct.
func describeStruct(options []Option, prefix string, v reflect.Value) []Option {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return options
	}
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, ok := optionName(f)
		if !ok {
			continue
		}
		value, err := v.FieldByIndexErr(f.Index)
		if err != nil { // below a nil pointer that is embedded
			value = reflect.Zero(f.Type)
		}
		if isBlock(f.Type) {
			options = describeStruct(options, prefix+name+".", value)
			continue
		}
		preset, err := json.Marshal(value.Interface())
		if err != nil {
			preset = nil
		}
		options = append(options, Option{prefix + name, typeWord(f.Type), preset})
	}
	return options
}

// isBlock reports whether the options of type t are those of its fields: it is
// a struct that has no text or JSON of its own.
func isBlock(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) &&
		!reflect.PointerTo(t).Implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]())
}

// optionName returns the name of the option that a field of a struct is.
func optionName(f reflect.StructField) (name string, ok bool) {
	name, _, _ = strings.Cut(f.Tag.Get("json"), ",")
	if !f.IsExported() || f.Tag.Get("json") == "-" || f.Anonymous && name == "" {
		return "", false
	}
	return cmp.Or(name, f.Name), true
}

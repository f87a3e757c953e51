package caddymodule

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
)

// policy parses the use of a policy and appends it to the list that pointer
// names. The options that are not the host's become JSON.
func (p *parser) policy(pointer string, to *[]PolicyUse) option {
	return func() error {
		at := element(pointer, len(*to))
		args, err := p.begin(at, p.Val()+" <policy> { ... }", 1, 1)
		if err != nil {
			return err
		}
		u := PolicyUse{Policy: args[0]}
		host := options{
			"timeout":  p.duration(at+"/timeout", "timeout <duration>", &u.Timeout),
			"on_error": p.text(at+"/on_error", "on_error open|closed", &u.OnError),
		}
		config := make(map[string]any)
		for nesting := p.Nesting(); p.NextBlock(nesting); {
			if parse, ok := host[p.Val()]; ok {
				err = parse()
			} else {
				err = p.member(at+"/config", config)
			}
			if err != nil {
				return err
			}
		}
		if len(config) > 0 {
			u.ConfigRaw, err = json.Marshal(config)
		}
		*to = append(*to, u)
		return p.wrap(err)
	}
}

// member parses one option of a policy into the object that at names.
func (p *parser) member(at string, object map[string]any) error {
	name := p.Val()
	if (name == "{" || name == "}") && !p.Token().Quoted() {
		return p.Errf("unexpected %q; write the name of an option before it", name)
	}
	at += "/" + pointerEscaper.Replace(name)
	if err := p.mark(at); err != nil {
		return err
	}
	var values []any
	for p.NextArg() {
		value, err := p.scalar()
		if err != nil {
			return err
		}
		values = append(values, value)
	}
	inner, err := p.object(at)
	switch {
	case err != nil:
		return err
	case inner != nil && len(values) > 0:
		return p.Errf("%s has both values and a block; write one of them", name)
	case inner != nil:
		object[name] = inner
	case len(values) == 0:
		object[name] = true
	case len(values) == 1:
		object[name] = values[0]
	default:
		object[name] = values
	}
	return nil
}

// object parses the block that opens on the current line, or returns nil if
// there is none.
func (p *parser) object(at string) (map[string]any, error) {
	object := make(map[string]any)
	nesting, inWord := p.Nesting(), !p.closes()
	if !p.NextBlock(nesting) {
		if inWord && p.closes() { // an empty block
			return object, nil
		}
		return nil, nil
	}
	for more := true; more; more = p.NextBlock(nesting) {
		if err := p.member(at, object); err != nil {
			return nil, err
		}
	}
	return object, nil
}

// closes reports whether the current token ends a block.
func (p *parser) closes() bool {
	return p.Val() == "}" && !p.Token().Quoted()
}

// jsonNumber matches the numbers of JSON (RFC 8259).
var jsonNumber = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$`)

// maxExactInteger is the largest integer below which a float64 holds all.
// Caddy's adapter passes numbers through one.
const maxExactInteger = 1 << 53

// scalar returns the value of the current word.
func (p *parser) scalar() (any, error) {
	word := p.Val()
	switch {
	case p.Token().Quoted():
		return word, nil
	case word == "true" || word == "false":
		return word == "true", nil
	case !jsonNumber.MatchString(word):
		return word, nil
	}
	f, err := strconv.ParseFloat(word, 64)
	if err != nil || (math.Abs(f) > maxExactInteger && f == math.Trunc(f)) {
		return nil, p.Errf("the number %s is too large; quote it if it is meant as text", word)
	}
	return json.Number(word), nil
}

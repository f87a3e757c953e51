package caddymodule

import (
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// A parser turns Caddyfile tokens into configuration, and keeps the place of
// each part. It knows how things are written, not what they mean.
type parser struct {
	*caddyfile.Dispenser
	source SourceMap
}

func newParser(d *caddyfile.Dispenser) *parser {
	return &parser{d, make(SourceMap)}
}

// An option parses the rest of an option's line, and its block if it has one.
type option func() error

// options are what may stand in a block, by the first word.
type options map[string]option

// element returns the pointer of the element i of a list.
func element(list string, i int) string { return list + "/" + strconv.Itoa(i) }

// block parses the block that opens on the current line, if there is one.
func (p *parser) block(opts options) error {
	for nesting := p.Nesting(); p.NextBlock(nesting); {
		parse, ok := opts[p.Val()]
		if !ok {
			return p.unknown(opts)
		}
		if err := parse(); err != nil {
			return err
		}
	}
	return nil
}

// unknown returns the error for the current word, which is none of opts.
func (p *parser) unknown(opts options) error {
	if p.Val() == "{" || p.Val() == "}" {
		return p.Errf("unexpected %q: this option takes no block", p.Val())
	}
	return p.Errf("unknown option %q; %s", p.Val(), hint(p.Val(), slices.Sorted(maps.Keys(opts))))
}

// mark keeps the place of the current word as that of the part that pointer
// names. A part can be written once.
func (p *parser) mark(pointer string) error {
	if place, ok := p.source[pointer]; ok {
		return p.Errf("%s is set already at %s; remove one", path.Base(pointer), place)
	}
	p.source[pointer] = fmt.Sprintf("%s:%d", p.File(), p.Line())
	return nil
}

// begin marks the current word and returns the arguments behind it. Its errors
// show the usage and no argument, which may be a secret.
func (p *parser) begin(pointer, usage string, least, most int) ([]string, error) {
	if err := p.mark(pointer); err != nil {
		return nil, err
	}
	return p.args(usage, least, most)
}

// anyNumber of arguments is allowed.
const anyNumber = math.MaxInt

// args returns the arguments behind the current word.
func (p *parser) args(usage string, least, most int) ([]string, error) {
	args := p.RemainingArgs()
	if len(args) < least || len(args) > most {
		return nil, p.Errf("wrong number of arguments; write: %s", usage)
	}
	return args, nil
}

// one is begin for a single argument.
func (p *parser) one(pointer, usage string) (string, error) {
	args, err := p.begin(pointer, usage, 1, 1)
	if err != nil {
		return "", err
	}
	return args[0], nil
}

// text parses an option that is a word.
func (p *parser) text(pointer, usage string, to *string) option {
	return func() error {
		arg, err := p.one(pointer, usage)
		*to = arg
		return err
	}
}

// secret parses an option that must not be a secret itself. It is checked here
// already, because adapting would show it.
func (p *parser) secret(pointer, usage string, check func(string) error, to *string) option {
	return func() error {
		arg, err := p.one(pointer, usage)
		if err != nil {
			return err
		}
		*to = arg
		return p.wrap(check(arg))
	}
}

// wrap adds the place of the current word to err, unless that is nil.
func (p *parser) wrap(err error) error {
	if err == nil {
		return nil
	}
	return p.WrapErr(err)
}

// number parses an option that is a whole number.
func (p *parser) number(pointer, usage string, to *int) option {
	return func() error {
		arg, err := p.one(pointer, usage)
		if err != nil {
			return err
		}
		if *to, err = strconv.Atoi(arg); err != nil {
			return p.notNumber(arg, usage)
		}
		return nil
	}
}

func (p *parser) notNumber(arg, usage string) error {
	return p.Errf("%q is no whole number; write: %s", arg, usage)
}

// optional is number for one whose default is not 0.
func (p *parser) optional(pointer, usage string, to **int) option {
	return func() error {
		*to = new(int)
		return p.number(pointer, usage, *to)()
	}
}

// positive is number for one where 0 in JSON means the default, so that it
// must not be written.
func (p *parser) positive(pointer, usage string, to *int) option {
	return func() error {
		if err := p.number(pointer, usage, to)(); err != nil {
			return err
		}
		if *to < 1 {
			return p.Errf("%d is no whole number above 0; write: %s", *to, usage)
		}
		return nil
	}
}

// duration parses an option that is a duration longer than 0.
func (p *parser) duration(pointer, usage string, to *caddy.Duration) option {
	return func() error {
		arg, err := p.one(pointer, usage)
		if err != nil {
			return err
		}
		return p.parseDuration(arg, usage, to)
	}
}

func (p *parser) parseDuration(arg, usage string, to *caddy.Duration) error {
	d, err := caddy.ParseDuration(arg)
	if err != nil || d <= 0 {
		return p.Errf("%q is no duration longer than 0, such as 90s, 1m30s or 1d; write: %s", arg, usage)
	}
	*to = caddy.Duration(d)
	return nil
}

// flag parses an option that stands alone.
func (p *parser) flag(pointer, usage string, to *bool) option {
	return func() error {
		_, err := p.begin(pointer, usage, 0, 0)
		*to = true
		return err
	}
}

// words parses an option that is a list of at least one word.
func (p *parser) words(pointer, usage string, to *[]string) option {
	return func() error {
		args, err := p.begin(pointer, usage, 1, anyNumber)
		*to = args
		return err
	}
}

// label parses a label within the part that at names.
func (p *parser) label(at string, to *map[string]string) option {
	return p.pair(at+"/labels", "label <name> <value>", to)
}

// pair parses an option that adds a name and its value to a map.
func (p *parser) pair(pointer, usage string, to *map[string]string) option {
	return func() error {
		args, err := p.args(usage, 2, 2)
		if err != nil {
			return err
		}
		if *to == nil {
			*to = make(map[string]string)
		}
		(*to)[args[0]] = args[1]
		return p.mark(pointer + "/" + pointerEscaper.Replace(args[0]))
	}
}

// limit parses a limit within the part that at names.
func (p *parser) limit(at string, to *[]Limit) option {
	const usage = "limit concurrency <limit>, or limit requests|tokens <limit>/<window>"
	return func() error {
		args, err := p.begin(element(at+"/limits", len(*to)), usage, 2, 2)
		if err != nil {
			return err
		}
		l := Limit{Kind: args[0]}
		amount, window, limited := strings.Cut(args[1], "/")
		if l.Limit, err = strconv.ParseInt(amount, 10, 64); err != nil {
			return p.notNumber(amount, usage)
		}
		if limited {
			err = p.parseDuration(window, usage, &l.Window)
		}
		*to = append(*to, l)
		return err
	}
}

package simulator

import (
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("simulated_provider", parseDirective)
	httpcaddyfile.RegisterDirectiveOrder("simulated_provider", httpcaddyfile.Before, "respond")
}

func parseDirective(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	p := new(Provider)
	return p, p.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the provider from Caddyfile tokens. Syntax:
//
//	simulated_provider [<matcher>] [<name>] {
//	    latency           <duration>
//	    tokens_per_second <number>
//	    tokens            <number>
//	    error_rate        <share>
//	    error_status      <status>
//	    key <name> <secret> {
//	        concurrency <number>
//	        requests    <number>/<window>
//	        status      <status> [<error_code>]
//	        retry_after <duration>
//	    }
//	}
func (p *Provider) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		p.Name = d.Val()
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := p.unmarshalOption(d); err != nil {
			return err
		}
	}
	return nil
}

func (p *Provider) unmarshalOption(d *caddyfile.Dispenser) (err error) {
	switch option := d.Val(); option {
	case "latency":
		p.Latency, err = durationArg(d)
	case "tokens_per_second":
		p.TokensPerSecond, err = numberArg(d)
	case "tokens":
		p.Tokens, err = countArg(d)
	case "error_rate":
		p.ErrorRate, err = numberArg(d)
	case "error_status":
		p.ErrorStatus, err = countArg(d)
	case "key":
		var k Key
		k, err = unmarshalKey(d)
		p.Keys = append(p.Keys, k)
	default:
		return d.Errf("unrecognized option '%s'; there are latency, tokens_per_second, tokens, error_rate, error_status and key", option)
	}
	return err
}

func unmarshalKey(d *caddyfile.Dispenser) (k Key, err error) {
	if !d.AllArgs(&k.Name, &k.Secret) {
		return k, d.Err("a key has a name and a secret: key <name> <secret>")
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		switch option := d.Val(); option {
		case "concurrency":
			k.Concurrency, err = countArg(d)
		case "requests":
			k.Requests, err = rateArg(d)
		case "status":
			k.Status, k.Code, err = statusArgs(d)
		case "retry_after":
			k.RetryAfter, err = durationArg(d)
		default:
			err = d.Errf("unrecognized option '%s' of a key; there are concurrency, requests, status and retry_after", option)
		}
		if err != nil {
			return k, err
		}
	}
	return k, nil
}

// arg returns the one argument of an option.
func arg(d *caddyfile.Dispenser) (string, error) {
	var s string
	if !d.AllArgs(&s) {
		return "", d.ArgErr()
	}
	return s, nil
}

func durationArg(d *caddyfile.Dispenser) (caddy.Duration, error) {
	s, err := arg(d)
	if err != nil {
		return 0, err
	}
	v, err := caddy.ParseDuration(s)
	if err != nil {
		return 0, d.Errf("'%s' is no duration, such as 300ms or 5s", s)
	}
	return caddy.Duration(v), nil
}

func numberArg(d *caddyfile.Dispenser) (float64, error) {
	s, err := arg(d)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, d.Errf("'%s' is no number", s)
	}
	return v, nil
}

func countArg(d *caddyfile.Dispenser) (int, error) {
	s, err := arg(d)
	if err != nil {
		return 0, err
	}
	v, err := strconv.Atoi(s)
	if err != nil {
		return 0, d.Errf("'%s' is no whole number", s)
	}
	return v, nil
}

func rateArg(d *caddyfile.Dispenser) (*Rate, error) {
	s, err := arg(d)
	if err != nil {
		return nil, err
	}
	number, window, _ := strings.Cut(s, "/")
	limit, err := strconv.Atoi(number)
	if err != nil {
		return nil, d.Errf("'%s' is no number per window, such as 60/1m", s)
	}
	every, err := caddy.ParseDuration(window)
	if err != nil {
		return nil, d.Errf("'%s' is no number per window, such as 60/1m", s)
	}
	return &Rate{Limit: limit, Window: caddy.Duration(every)}, nil
}

func statusArgs(d *caddyfile.Dispenser) (status int, code string, err error) {
	args := d.RemainingArgs()
	if len(args) < 1 || len(args) > 2 {
		return 0, "", d.ArgErr()
	}
	status, err = strconv.Atoi(args[0])
	if err != nil {
		return 0, "", d.Errf("'%s' is no status, such as 429", args[0])
	}
	if len(args) == 2 {
		code = args[1]
	}
	return status, code, nil
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Provider)(nil)

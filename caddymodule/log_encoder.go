package caddymodule

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/logging"
	"go.uber.org/zap/zapcore"

	"github.com/usherproxy/usher/internal/format"
)

func init() {
	caddy.RegisterModule(new(LogEncoder))
	caddy.RegisterModule(logURI{})
}

// LogEncoder is a log format that shows no credential of a caller: it is
// Caddy's `filter`, which hides the headers `Authorization`,
// `Proxy-Authorization`, `Cookie`, `X-Api-Key`, `Api-Key` and `X-Goog-Api-Key`,
// the subprotocols of WebSockets, and `?key=`, `?access_token=` and
// `?oauth_token=`. Write `format usher` in the block of a `log`; further fields
// can be filtered as with `filter`.
type LogEncoder struct {
	// What encodes the rest. Default: `json`, and `console` on a terminal.
	WrappedRaw json.RawMessage `json:"wrap,omitempty" caddy:"namespace=caddy.logging.encoders inline_key=format"`

	// Filters of further fields.
	FieldsRaw map[string]json.RawMessage `json:"fields,omitempty" caddy:"namespace=caddy.logging.encoders.filter inline_key=filter"`

	*logging.FilterEncoder `json:"-"`
}

// CaddyModule returns the Caddy module information.
func (*LogEncoder) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.encoders.usher", New: func() caddy.Module { return new(LogEncoder) }}
}

// Provision sets up the filters.
func (e *LogEncoder) Provision(ctx caddy.Context) error {
	fields := map[string]json.RawMessage{
		"request>uri": caddyconfig.JSONModuleObject(logURI{}, "filter", "usher_uri", nil),
	}
	for _, name := range format.CredentialFields() {
		fields["request>headers>"+name] = caddyconfig.JSONModuleObject(new(logging.ReplaceFilter{Value: hidden}), "filter", "replace", nil)
	}
	for name, filter := range e.FieldsRaw {
		if _, ok := fields[name]; ok {
			return fmt.Errorf("the field %s is filtered by this format itself", name)
		}
		fields[name] = filter
	}
	e.FilterEncoder = &logging.FilterEncoder{WrappedRaw: e.WrappedRaw, FieldsRaw: fields}
	return e.FilterEncoder.Provision(ctx)
}

// UnmarshalCaddyfile sets up the encoder from Caddyfile tokens. The syntax is
// that of Caddy's `filter`.
func (e *LogEncoder) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	var f logging.FilterEncoder
	if err := f.UnmarshalCaddyfile(d); err != nil {
		return err
	}
	e.WrappedRaw, e.FieldsRaw = f.WrappedRaw, f.FieldsRaw
	return nil
}

// hidden is what stands in logs in place of a secret, as Caddy writes it.
const hidden = "REDACTED"

// logURI hides the credential in the query of a logged URI, also of one that
// is not well formed.
type logURI struct{}

// CaddyModule returns the Caddy module information.
func (logURI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.encoders.filter.usher_uri", New: func() caddy.Module { return new(logURI) }}
}

// Filter hides the credential.
func (logURI) Filter(in zapcore.Field) zapcore.Field {
	in.String = format.HideCredential(in.String, url.QueryEscape(hidden))
	return in
}

var (
	_ caddy.Provisioner                = (*LogEncoder)(nil)
	_ caddyfile.Unmarshaler            = (*LogEncoder)(nil)
	_ zapcore.Encoder                  = (*LogEncoder)(nil)
	_ caddy.ConfiguresFormatterDefault = (*LogEncoder)(nil)
	_ logging.LogFieldFilter           = logURI{}
)

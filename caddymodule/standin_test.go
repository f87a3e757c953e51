package caddymodule_test

import (
	"net/http"
	"os"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/usherproxy/usher/caddymodule"
)

// TestMain registers a stand-in where the package itself has no handler.
func TestMain(m *testing.M) {
	if _, err := caddy.GetModule("http.handlers.usher"); err != nil {
		caddy.RegisterModule(standIn{})
		httpcaddyfile.RegisterGlobalOption("usher", caddymodule.ParseGlobalOption)
		httpcaddyfile.RegisterHandlerDirective("usher", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
			s := new(standIn)
			return s, s.UnmarshalCaddyfile(h.Dispenser)
		})
		httpcaddyfile.RegisterDirectiveOrder("usher", httpcaddyfile.Before, "reverse_proxy")
	}
	os.Exit(m.Run())
}

// standIn is a handler that is nothing but configuration.
type standIn struct{ caddymodule.Config }

func (standIn) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.usher", New: func() caddy.Module { return new(standIn) }}
}

func (standIn) ServeHTTP(http.ResponseWriter, *http.Request, caddyhttp.Handler) error { return nil }

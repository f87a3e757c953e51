package caddymodule

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/usherproxy/usher/internal/format"
)

func (c *Config) checkPolicies(r reporter, plugins []string) {
	checkUses(r, "select", c.Select, append([]string{policyKeys, policyNone}, plugins...))
	checkUses(r, "admit", c.Admit, append([]string{policyFIFO, policyNone}, plugins...))
}

func checkUses(r reporter, field string, uses []PolicyUse, known []string) {
	names := make([]string, len(uses))
	for i := range uses {
		u := &uses[i]
		names[i] = u.Policy
		r := r.item(field, i, named(field, u.Policy))
		switch {
		case u.Policy == policyKeys && field == "admit":
			r.errorf("it selects, and does not admit; use: select %s", u.Policy)
		case u.Policy == policyFIFO && field == "select":
			r.errorf("it admits, and does not select; use: admit %s", u.Policy)
		case !slices.Contains(known, u.Policy):
			r.errorf("no such policy, and no plugin of that name in the global option usher; %s", hint(u.Policy, known))
		}
		u.check(r)
		if u.Policy == policyNone && len(uses) > 1 {
			r.errorf("none must stand alone; remove it or the other %s", field)
		}
	}
	checkUnique(r, field, field, names)
}

func (u *PolicyUse) check(r reporter) {
	checkDuration(r.in("timeout", "timeout"), u.Timeout)
	if u.OnError != "" && u.OnError != onErrorOpen && u.OnError != onErrorClosed {
		r.in("on_error", fmt.Sprintf("on_error %q", u.OnError)).errorf("must be open or closed")
	}
	raw := bytes.TrimSpace(u.ConfigRaw)
	if len(raw) > 0 && raw[0] != '{' {
		r.in("config", "config").errorf("must be a JSON object")
	}
	if u.Policy == policyNone && len(raw) > 0 {
		r.errorf("none takes no options; remove them")
	}
}

// check returns everything that is wrong with a, as [Config.check] does.
func (a *AppConfig) check() error {
	p := &problems{source: a.Source}
	r := p.root()
	checkUnique(r, "plugins", "plugin", a.policies())
	a.checkInline(r.in("inline", "inline"))
	for i := range a.Plugins {
		a.Plugins[i].check(r.item("plugins", i, named("plugin", a.Plugins[i].Name)))
	}
	return p.err()
}

func (a *AppConfig) checkInline(r reporter) {
	for i, name := range a.Inline {
		switch {
		case !slices.Contains(builtIn, name):
			r.errorf("only built-in policies can run in this process, and %q is none; %s", name, hint(name, builtIn))
		case slices.Index(a.Inline, name) < i:
			r.errorf("%s is listed twice; remove one", name)
		}
	}
}

var reservedPolicies = []string{policyKeys, policyFIFO, policyNone}

func (p *Plugin) check(r reporter) {
	checkName(r, plainName, p.Name)
	if slices.Contains(reservedPolicies, p.Name) {
		r.errorf("the name is taken by a policy that is always there; choose another")
	}
	switch {
	case p.Path == "":
		r.in("path", "path").errorf("is missing")
	case filepath.Base(p.Path) == p.Path:
		r.in("path", "path").errorf("PATH is not searched; write /path/to/%s or ./%[1]s", p.Path)
	}
	if p.Checksum != "" && !checksum.MatchString(p.Checksum) {
		r.in("checksum", "checksum").errorf("write sha256: and 64 hexadecimal digits, as of: sha256sum %s", p.Path)
	}
	if p.Attach != "" && (p.Checksum != "" || p.User != "" || p.Group != "" || p.Workdir != "" || p.AutoMTLS) {
		r.in("attach", "attach").errorf("what was started by hand has no checksum, user, group, workdir or auto_mtls; remove them")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		value := p.Env[name]
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			r.in("env", "env").errorf("%q is no name of a variable, or its value holds a zero byte", name)
		}
	}
	checkDuration(r.in("start_timeout", "start_timeout"), p.StartTimeout)
	for _, h := range p.GrantHeaders {
		checkGrant(r.in("grant_headers", fmt.Sprintf("grant headers %q", h)), h)
	}
}

// checksum matches the checksum of an executable.
var checksum = regexp.MustCompile("^sha256:[0-9A-Fa-f]{64}$")

// headerName matches the name of a header field (RFC 9110, token).
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func checkGrant(r reporter, header string) {
	switch {
	case !headerName.MatchString(header):
		r.errorf("no name of a header")
	case slices.Contains(format.CredentialFields(), http.CanonicalHeaderKey(header)):
		r.errorf("it carries credentials, which no policy may see")
	}
}

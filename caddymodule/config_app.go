package caddymodule

import (
	"time"

	"github.com/caddyserver/caddy/v2"
)

// AppConfig is what all sites share. It is the JSON of the app `usher`.
type AppConfig struct {
	// Policies of third parties, which run as processes of their own.
	Plugins []Plugin `json:"plugins,omitempty"`

	// Built-in policies, `keys` or `fifo`, that run in this process and not in
	// one of their own: a request takes less time, and what kills such a policy
	// kills the server. They share this process's environment, and what they
	// log goes to the log of the same name. Default: none.
	Inline []string `json:"inline,omitempty"`

	// Exports no traces and metrics by OTLP, whatever the environment says.
	// Default: false, export if the `OTEL_*` environment asks for it.
	DisableTelemetry bool `json:"disable_telemetry,omitempty"`

	// Where the Caddyfile said it. The adapter writes it, so that an error
	// found later can name the line; leave it out of JSON written by hand.
	Source SourceMap `json:"source,omitempty"`
}

// Plugin is an executable that serves a policy. It is told nothing secret
// unless this configuration says so: not the environment, not the headers and
// not the body of requests.
type Plugin struct {
	// The name under which `select` and `admit` refer to the plugin. It cannot
	// be `keys`, `fifo` or `none`.
	Name string `json:"name"`

	// The executable: an absolute path, or one that contains a `/` and is
	// relative to the working directory. `PATH` is not searched.
	Path string `json:"path"`

	// The arguments of the executable.
	Args []string `json:"args,omitempty"`

	// The environment of the process, which is empty otherwise. Values may
	// contain `{env.NAME}` and `{file./path}`, which are replaced when the
	// configuration is loaded.
	Env map[string]string `json:"env,omitempty"`

	// The checksum of the executable, as `sha256:` and 64 hexadecimal digits. No
	// other file is run, and what is run is what was checked. It needs Linux.
	// A new version comes with a new checksum, by a reload. Default: any file.
	Checksum string `json:"checksum,omitempty"`

	// The user and the group that the process runs as, by name or number. The
	// user must be able to reach the directory for temporary files, where the
	// socket is. It needs root. Default: those of Usher.
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`

	// The working directory of the process. Default: that of Usher.
	Workdir string `json:"workdir,omitempty"`

	// Encrypts and authenticates the connection with certificates that are made
	// for each process. The socket is in a directory that nobody else can
	// enter, so this only matters where that is not enough. The plugin must
	// support AutoMTLS of go-plugin, as those of the SDK do. Default: false.
	AutoMTLS bool `json:"auto_mtls,omitempty"`

	// The socket of a plugin that was started by hand, in a debugger for
	// example, with `USHER_ATTACH` set to the same path. Nothing is started
	// then, and nothing that hangs is killed. Default: the executable is run.
	Attach string `json:"attach,omitempty"`

	// How long the process may take until it serves. Raise it for plugins in
	// languages that start slowly. Default: 10s.
	StartTimeout caddy.Duration `json:"start_timeout,omitempty"`

	// The request headers that the plugin's policies may see. Those that carry
	// credentials cannot be granted. Default: none.
	GrantHeaders []string `json:"grant_headers,omitempty"`

	// Lets the plugin's policies see the bodies of requests: the prompts.
	// Default: false.
	GrantBody bool `json:"grant_body,omitempty"`
}

const defaultStartTimeout = caddy.Duration(10 * time.Second)

// setDefaults fills in what the operator left out.
func (a *AppConfig) setDefaults() {
	for i := range a.Plugins {
		if a.Plugins[i].StartTimeout == 0 {
			a.Plugins[i].StartTimeout = defaultStartTimeout
		}
	}
}

// policies returns the names of the plugins, which are those of the policies
// that sites may use besides the ones that are always there.
func (a *AppConfig) policies() []string {
	names := make([]string, len(a.Plugins))
	for i := range a.Plugins {
		names[i] = a.Plugins[i].Name
	}
	return names
}

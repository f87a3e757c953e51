package caddymodule

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/usherproxy/usher/internal/pluginhost"
)

// spec returns how the plugin is run in an environment.
func (p *Plugin) spec(env []string) pluginhost.Spec {
	spec := pluginhost.Spec{
		Name: p.Name, Path: p.Path, Args: p.Args, Env: env,
		Dir: p.Workdir, User: p.User, Group: p.Group, AutoMTLS: p.AutoMTLS,
		Checksum:     strings.ToLower(strings.TrimPrefix(p.Checksum, "sha256:")),
		StartTimeout: time.Duration(p.StartTimeout), HostVersion: Version(),
	}
	if p.Attach != "" {
		spec.Path, spec.Args, spec.Env, spec.Patient = ownPath(), []string{attachCommand, p.Attach}, nil, true
	}
	return spec
}

// ownPath returns the path of this executable.
func ownPath() string {
	path, err := os.Executable()
	if err != nil {
		return fmt.Sprintf("(unknown: %v)", err)
	}
	return path
}

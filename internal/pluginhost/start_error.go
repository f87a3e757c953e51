package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/usherproxy/usher/sdk/host"
)

// exitLag is how long the end of a process may be noticed after that of its
// output.
const exitLag = time.Second

// startError ends a process that does not serve, and says why it does not, in
// words that help the one who wrote the plugin or its configuration.
func (p *process) startError(ctx context.Context, spec Spec, err error) error {
	cause, r := context.Cause(ctx), p.runner
	if r.cmd.Process == nil {
		p.end(0)
		if e, ok := errors.AsType[*fs.PathError](err); ok && e.Path == spec.Path {
			err = e.Err
		}
		return fmt.Errorf("start plugin %s (%s): %w%s", spec.Name, spec.Path, err, execHint(spec.Path, err))
	}
	said := r.stdout.said()
	crashed := cause == nil && r.hasExited(exitLag) && (said == "" || !r.wasKilled())
	p.end(0)
	var why string
	switch {
	case said != "" && !handshake.MatchString(said):
		why = fmt.Sprintf("it wrote %q to standard output, where only the handshake may stand: let it log to standard error", said)
	case strings.Contains(err.Error(), "incompatible API version"):
		why = fmt.Sprintf("it speaks version %s of the plugin protocol, and this Usher speaks version %d: rebuild the plugin with the SDK of this Usher, or update Usher",
			strings.Split(said, "|")[1], host.Handshake.ProtocolVersion)
	case errors.Is(cause, errStartTimeout):
		why = fmt.Sprintf("it did not begin to serve within %s (start_timeout)", spec.StartTimeout)
	case cause != nil:
		why = cause.Error()
	case crashed:
		why = r.exitWord() + " before it served; is it a plugin of Usher, made with sdk.Serve?"
	default:
		why = err.Error()
	}
	if words := strings.TrimSpace(r.stderr.lastWords()); words != "" {
		why += "; its last words were: " + words
	}
	return fmt.Errorf("start plugin %s (%s): %s", spec.Name, spec.Path, why)
}

// handshake is how the first line of a plugin begins: with the versions of
// go-plugin's protocol and of ours.
var handshake = regexp.MustCompile(`^\d+\|\d+\|`)

// execHint says what the system's words about an executable may mean.
func execHint(path string, err error) string {
	info, statErr := os.Stat(path)
	switch {
	case statErr == nil && info.IsDir():
		return ": it is a directory"
	case errors.Is(err, fs.ErrPermission):
		return ": it must be executable (chmod +x)"
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Sprintf(": it must be built for %s/%s, or begin with #!", runtime.GOOS, runtime.GOARCH)
	}
	return ""
}

package pluginhost

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// A Spec says which executable to run, and how.
type Spec struct {
	// Name is the plugin's name in the configuration, for logs and errors.
	Name string

	// Path is the executable, and Args are its arguments.
	Path string
	Args []string

	// Env is the whole environment of the process, as "NAME=value".
	Env []string

	// Dir is the working directory of the process, or empty for the host's.
	Dir string

	// User and Group are whom the process runs as, by name or number, or empty
	// for the host's own. The group of a user is the default of Group. Only
	// root may give away its rights.
	User, Group string

	// Checksum, if it is not empty, is the SHA-256 of the executable, in
	// hexadecimal. A file with another one is not run. What is run is what was
	// hashed, whatever happens to the file meanwhile. It needs Linux.
	Checksum string

	// AutoMTLS encrypts and authenticates the connection with certificates
	// that are made for this process. The plugin must be able to do that; those
	// of the SDK are.
	AutoMTLS bool

	// Patient lets a process be that does not answer, because somebody debugs
	// it.
	Patient bool

	// StartTimeout is how long it may take until it serves.
	StartTimeout time.Duration

	// HostVersion is told to the plugin, for its log.
	HostVersion string
}

// Key is equal for equal specs: they can share a process. It reveals nothing
// of Env. The checksum is no part of it, for a new one is that of a new version
// of the same plugin; see [Plugin.Renew].
func (s Spec) Key() string {
	s.Checksum = ""
	text, _ := json.Marshal(s) // strings and a number always marshal
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// timing is how patient a host is.
type timing struct {
	// A process is asked every probeEvery whether it lives, and when a call has
	// timed out, which counts as a missed probe. One that misses maxMissed in a
	// row, each of probeTimeout, hangs and is killed.
	probeEvery, probeTimeout time.Duration

	// A process that dies is started again after about backoffMin, and after
	// twice as long each time it dies young, up to backoffMax. One that lived
	// for healthyAfter counts as well again: what it costs to start one is
	// little against that, and requests wait meanwhile.
	backoffMin, backoffMax, healthyAfter time.Duration

	// setUpTimeout is how long a new process may take to take over what the
	// one before it had.
	setUpTimeout time.Duration

	// tellTimeout is how long a process may take to acknowledge a part of the
	// journal, and tellAgain how long it is left alone when it could not.
	tellTimeout, tellAgain time.Duration

	// killAfter is how long a process that was told to end may take. A plugin
	// has go-plugin's two seconds to close its policies; the rest is for a
	// busy machine.
	killAfter time.Duration
}

var defaultTiming = timing{
	probeEvery:   time.Second,
	probeTimeout: 2 * time.Second,
	backoffMin:   10 * time.Millisecond,
	backoffMax:   10 * time.Second,
	healthyAfter: time.Second,
	setUpTimeout: 30 * time.Second,
	tellTimeout:  10 * time.Second,
	tellAgain:    time.Second,
	killAfter:    4 * time.Second,
}

const maxMissed = 2

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

	// StartTimeout is how long it may take until it serves.
	StartTimeout time.Duration

	// HostVersion is told to the plugin, for its log.
	HostVersion string
}

// Key is equal for equal specs: they can share a process. It reveals nothing
// of Env.
func (s Spec) Key() string {
	text, _ := json.Marshal(s) // strings and a number always marshal
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

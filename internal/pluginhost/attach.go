package pluginhost

import (
	"fmt"
	"io"
	"net"

	"github.com/usherproxy/usher/sdk/host"
)

// Attach stands in, as a process that a host has started, for a plugin that
// was started by hand and listens on socket: it shakes hands in its name, and
// lives until its input ends.
func Attach(out io.Writer, in io.Reader, socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return fmt.Errorf("no plugin listens there; start it with USHER_ATTACH=%s: %w", socket, err)
	}
	if err := conn.Close(); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "1|%d|unix|%s|grpc\n", host.Handshake.ProtocolVersion, socket); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

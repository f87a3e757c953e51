//go:build unix

package wire

import (
	"net"
	"syscall"
)

// A trial writes to a connection as much as that takes without blocking.
type trial struct {
	raw syscall.RawConn // nil if it is not known how
	try *attempt
}

// An attempt is one write.
type attempt struct {
	p    []byte
	n    int
	once func(fd uintptr) bool // made once, since every call would allocate it
}

func newTrial(conn net.Conn) trial {
	sys, ok := conn.(syscall.Conn)
	if !ok {
		return trial{}
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return trial{}
	}
	a := &attempt{}
	a.once = func(fd uintptr) bool {
		if n, err := syscall.Write(int(fd), a.p); err == nil {
			a.n = n
		}
		return true // whatever came of it: do not wait
	}
	return trial{raw, a}
}

// write returns how much of p was written. An error is left to the next write
// that may block.
func (t trial) write(p []byte) int {
	if t.raw == nil || len(p) == 0 {
		return 0
	}
	t.try.p, t.try.n = p, 0
	_ = t.raw.Write(t.try.once) // fails if the connection is closed
	t.try.p = nil
	return t.try.n
}

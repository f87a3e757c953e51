// Package freeport finds TCP ports for the servers that tests and benchmarks start.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// The ports are below those that systems give to outgoing connections, which would
// take one at any time. Each has another one that stands for it.
const (
	first = 20000
	count = 6000
)

// Reserve returns a port of 127.0.0.1 on which nobody listens, and which no process
// gets from Reserve until this one calls release or ends. To test that a port is
// free would not be enough: another process may do the same before either listens,
// and those that share ports (as Caddy does) would not even notice.
//
// A process reserves a port by listening on the one that stands for it, which ends
// with the process.
func Reserve() (port int, release func() error, err error) {
	var last error
	for range 1000 {
		port := first + rand.IntN(count)
		reserved, err := net.Listen("tcp", address(port+count))
		if err != nil {
			last = err
			continue
		}
		free, err := net.Listen("tcp", address(port))
		if err == nil {
			err = free.Close()
		}
		if err == nil {
			return port, reserved.Close, nil
		}
		last = errors.Join(err, reserved.Close())
	}
	return 0, nil, fmt.Errorf("no port is free: %w", last)
}

// A T is what ForTest needs of a testing.TB.
type T interface {
	Helper()
	Cleanup(f func())
	Error(args ...any)
	Fatal(args ...any)
}

// ForTest reserves a port until the test ends.
func ForTest(t T) int {
	t.Helper()
	port, release, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	return port
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

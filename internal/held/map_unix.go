//go:build unix

package held

import (
	"errors"
	"math"
	"os"
	"syscall"
)

// mapped returns the content of a file, and what ends its use. Nobody else can
// write to the file or cut it, because it has no name.
func mapped(file *os.File, size int64) ([]byte, func(), error) {
	if size > math.MaxInt {
		return nil, nil, errors.New("it does not fit into the address space")
	}
	text, err := syscall.Mmap(int(file.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return text, func() { _ = syscall.Munmap(text) }, nil // it was mapped just so
}

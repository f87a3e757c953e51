package pluginhost

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolate puts cmd in a process group of its own, lets the kernel kill it when
// the host's spawning thread ends, and gives it an identity unless that is nil.
func isolate(cmd *exec.Cmd, as *identity) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if as != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: as.user, Gid: as.group, Groups: as.groups}
	}
}

// pin copies an executable to where nobody can change it, and returns the copy
// and its SHA-256.
func pin(path string) (copied *os.File, sum []byte, err error) {
	original, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = original.Close() }() // it was only read
	fd, err := unix.MemfdCreate(filepath.Base(path), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("memfd_create: %w", err)
	}
	copied = os.NewFile(uintptr(fd), path)
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(copied, hash), original)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = copied.Close()
		return nil, nil, fmt.Errorf("copy %s: %w", path, err)
	}
	return copied, hash.Sum(nil), nil
}

// runPinned lets cmd run what pin returned.
func runPinned(cmd *exec.Cmd, copied *os.File) {
	cmd.ExtraFiles = []*os.File{copied} // number 3 there
	cmd.Path = "/proc/self/fd/3"
}

// wait waits for the end of cmd. It calls ending before the number of the
// process, which is that of its group, may belong to another one.
func wait(cmd *exec.Cmd, ending func()) error {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	ending()
	return cmd.Wait()
}

// killGroup kills the process and all that it started. The process must not
// have been waited for.
func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

// fileID returns what tells files apart.
func fileID(info fs.FileInfo) (device, inode uint64) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Dev, s.Ino
	}
	return 0, 0
}

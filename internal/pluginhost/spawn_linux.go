package pluginhost

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolate puts cmd in a process group of its own, and lets the kernel kill it
// when the host's spawning thread ends.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
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

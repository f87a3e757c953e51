package pluginhost

import (
	"os/exec"
	"syscall"
)

// isolate puts cmd in a process group of its own, and lets the kernel kill it
// when the host's spawning thread ends.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killGroup kills the process and all that it started.
func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

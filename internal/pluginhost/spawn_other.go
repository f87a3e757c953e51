//go:build !linux

package pluginhost

import (
	"os"
	"os/exec"
)

// isolate does nothing here: the life line alone ends a plugin whose host died.
func isolate(*exec.Cmd) {}

// killGroup kills the process.
func killGroup(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

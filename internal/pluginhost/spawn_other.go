//go:build !linux

package pluginhost

import (
	"os"
	"os/exec"
)

// isolate does nothing here: the life line alone ends a plugin whose host died.
func isolate(*exec.Cmd) {}

// wait waits for the end of cmd and calls ending.
func wait(cmd *exec.Cmd, ending func()) error {
	err := cmd.Wait()
	ending()
	return err
}

// killGroup kills the process.
func killGroup(p *os.Process) error { return p.Kill() }

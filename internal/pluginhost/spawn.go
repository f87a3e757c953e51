package pluginhost

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawn starts cmd from one operating system thread that lives as long as the
// host. The kernel sends Pdeathsig when the thread that forked a child ends,
// not when its process does, and the Go runtime ends threads at will.
func spawn(cmd *exec.Cmd) error {
	startSpawner()
	done := make(chan error)
	spawns <- func() { done <- cmd.Start() }
	return <-done
}

var (
	spawns       = make(chan func())
	startSpawner = sync.OnceFunc(func() { go spawner() })
)

// spawner runs what is sent to spawns, as long as the host lives.
func spawner() {
	runtime.LockOSThread() // never unlocked: the thread must not be reused
	for f := range spawns {
		f()
	}
}

package pgserver

import "syscall"

// endWithUs makes the kernel end a process when the thread that starts it ends.
func endWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }

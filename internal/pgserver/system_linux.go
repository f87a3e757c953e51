package pgserver

import "syscall"

// free returns how many bytes are free where a folder is, 0 if there is none.
func free(folder string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return 0
	}
	return int64(s.Bavail) * s.Bsize
}

// endWithUs makes the kernel end a process when the thread that starts it ends.
func endWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }

//go:build !linux

package pgserver

import "syscall"

func endWithUs(*syscall.SysProcAttr) {}

//go:build !linux

package pgtest

import "syscall"

func endWithUs(*syscall.SysProcAttr) {}

//go:build !linux

package launch

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}

func awaitExit(int) bool { return false }

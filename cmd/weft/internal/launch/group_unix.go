//go:build unix

package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	killSignal = syscall.SIGKILL
	endSignal  = syscall.SIGTERM
)

func supported() error { return nil }

// ownGroup makes cmd lead a process group of its own, so that a signal reaches what it starts, too.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

// signalGroup signals the group that pid leads.
func signalGroup(pid int, s os.Signal) error { return syscall.Kill(-pid, s.(syscall.Signal)) }

// describe says how a process ended.
func describe(err error) string {
	var e *exec.ExitError
	if !errors.As(err, &e) {
		return "could not be waited for: " + err.Error()
	}
	s := e.Sys().(syscall.WaitStatus)
	if !s.Signaled() {
		return fmt.Sprintf("exited with code %d", s.ExitStatus())
	}
	hint := ""
	switch s.Signal() {
	case syscall.SIGKILL:
		hint = " (by somebody, or for want of memory)"
	case syscall.SIGSEGV, syscall.SIGBUS:
		hint = " (a memory fault)"
	}
	return fmt.Sprintf("was killed by %s%s", unix.SignalName(s.Signal()), hint)
}

// exitCode is a shell's: the process's own, or 128 and the signal.
func exitCode(err error) int {
	var e *exec.ExitError
	if !errors.As(err, &e) {
		return 1
	}
	if s := e.Sys().(syscall.WaitStatus); s.Signaled() {
		return 128 + int(s.Signal())
	}
	return e.ExitCode()
}

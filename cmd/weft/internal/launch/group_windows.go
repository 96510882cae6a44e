package launch

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

const (
	killSignal = syscall.SIGKILL
	endSignal  = syscall.SIGTERM
)

func supported() error {
	return errors.New("weft launch needs process groups, which this system does not have")
}

func ownGroup(*exec.Cmd) {}

func signalGroup(int, os.Signal) error { return errors.ErrUnsupported }

func describe(err error) string { return err.Error() }

func exitCode(error) int { return 1 }

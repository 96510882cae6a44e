// Command cmd builds the GPU emulator, if it is not there, and prints the variables that make weft use it:
//
//	eval "$(go run ./internal/emulator/cmd)"
//
// With a command behind it, it runs that command with the variables set:
//
//	go run ./internal/emulator/cmd go test ./comm/p2p
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/weftgo/weft/internal/emulator"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "emulator:", err)
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		os.Exit(1)
	}
}

func run(args []string) error {
	l, err := emulator.Build("")
	if err != nil {
		return err
	}
	if len(args) == 0 {
		for _, v := range l.Env() {
			name, value, _ := strings.Cut(v, "=")
			fmt.Printf("export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
		}
		return nil
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), l.Env()...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

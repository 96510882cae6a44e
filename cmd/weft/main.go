// Command weft is the command line of weft.
//
//	weft plan --model qwen3-235b-a22b --gpus 8 --tokens 32768
//	weft doctor
//	weft launch -n 8 -- program args
//
// doctor prints which libraries, GPUs and links are here, and what weft can do with them. plan predicts collectives, bytes,
// memory and time of a MoE model's layouts before anything is allocated. launch starts the processes of a job. None needs a GPU.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"
)

// commands are the subcommands.
type commands struct {
	Plan   planCommand   `cmd:"" help:"Predict collectives, bytes, memory and time of a model's layouts, and advise on one."`
	Doctor doctorCommand `cmd:"" help:"Print which libraries, GPUs and links are here, and what weft can do with them."`
	Launch launchCommand `cmd:"" help:"Start the processes of a job on this node, and end them together."`
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run parses args and executes a command. It returns the exit status: 0, 1 for an error, 2 for a usage error,
// or that of the job that launch ran.
func run(args []string, stdout, stderr io.Writer) int {
	var c commands
	status := -1
	parser, err := kong.New(&c, kong.Name("weft"), kong.Description("Expert parallelism in Go: tools."), kong.Writers(stdout, stderr),
		kong.Exit(func(code int) {
			if status < 0 {
				status = code
			}
		}), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		fmt.Fprintln(stderr, "weft:", err)
		return 1
	}
	if len(args) == 0 || args[0] == "help" { // weft help plan is weft plan --help
		args = append(args[min(1, len(args)):len(args):len(args)], "--help")
	}
	ctx, err := parser.Parse(args)
	if status >= 0 { // --help was printed
		return status
	}
	if err != nil {
		fmt.Fprintln(stderr, "weft:", err)
		return 2
	}
	ctx.BindTo(stdout, (*io.Writer)(nil))
	if err := ctx.Run(); err != nil {
		if code := exitStatus(0); errors.As(err, &code) {
			return int(code)
		}
		fmt.Fprintln(stderr, "weft:", err)
		return 1
	}
	return 0
}

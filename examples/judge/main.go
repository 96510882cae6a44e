// Judge runs one trained Mixture-of-Experts model on eight ranks in one process, spread in seven ways, and compares them:
// speed, where the time goes, what the collectives move, and whether the answers are the same.
//
//	go run ./examples/judge                          the experiment on the bundled model
//	go run ./examples/judge --layouts tp8,dp8+ep8:alltoall --trace judge-trace.json
//	go run ./examples/judge complete --model DIR --layout dp8+ep8:agrs --input in.jsonl --output out.jsonl
//
// The exit status is not zero if a layout's answers differ from the first one's, or if a counter misses its formula.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/weftgo/weft/examples/internal/bundled"
	"github.com/weftgo/weft/examples/internal/checkpoint"
)

type commands struct {
	Run      runCommand      `cmd:"" default:"withargs" help:"Run the reward-judge workload in each layout and print a table (the default)."`
	Complete completeCommand `cmd:"" help:"Complete or score prompts given as token ids, one JSON object a line."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		stop()
		os.Exit(1)
	}
}

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) (err error) {
	var c commands
	exited := false
	parser, err := kong.New(&c, kong.Name("judge"), kong.Writers(out, errOut), kong.Exit(func(int) { exited = true }),
		kong.Description("One trained Qwen3-MoE model on eight ranks of one process, as TP, TP+EP and DP+EP."), kong.UsageOnError())
	if err != nil {
		return err
	}
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		fmt.Fprint(out, "judge has two commands, run (the default, below) and complete; see judge complete --help too.\n\n")
		args = []string{"run", "--help"}
	}
	k, err := parser.Parse(args)
	if exited {
		return nil
	}
	if err != nil {
		return err
	}
	k.BindTo(ctx, (*context.Context)(nil))
	k.Bind(streams{in, out, errOut})
	return k.Run()
}

// openModel opens a model folder, or the bundled one if dir is empty.
func openModel(dir string) (*checkpoint.Folder, error) {
	if dir == "" {
		return checkpoint.OpenFS(bundled.FS(), bundled.Name)
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no model folder %s; it must hold config.json and model.safetensors", dir)
	}
	return checkpoint.Open(dir)
}

// Serve answers OpenAI's HTTP routes with a Qwen3-MoE model that is spread over the ranks of this process.
//
//	go run ./examples/serve                                        the bundled model, on one rank
//	go run ./examples/serve --model DIR --tensor-parallel-size 8
//	go run ./examples/serve --data-parallel-size 8 --enable-expert-parallel --all2all-backend agrs
//	curl localhost:8000/v1/completions -d '{"prompt": "Verdict:", "max_tokens": 4}'
//
// Flags have vLLM's names; docs/serving.md lists them, the routes, and what is refused. The page at / shows what the ranks do.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		stop()
		os.Exit(1)
	}
}

// run serves until ctx ends. It writes one line with the address to out when it is ready, and its log to errOut.
func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	var f flags
	exited := false
	parser, err := kong.New(&f, kong.Name("serve"), kong.Writers(out, errOut), kong.Exit(func(int) { exited = true }),
		kong.Description("An OpenAI-compatible server over the ranks of one process."), kong.UsageOnError())
	if err != nil {
		return err
	}
	_, err = parser.Parse(args)
	if exited {
		return nil
	}
	if err != nil {
		return err
	}
	return f.serve(ctx, out, errOut)
}

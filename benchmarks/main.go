// Command benchmarks is nccl-tests for weft: it times every collective, and the exchange and layer of a Mixture-of-Experts
// model, over a sweep of sizes, and counts wrong elements.
//
//	go run ./benchmarks                                          everything, 8 B to 128 MiB, in a few minutes
//	go run ./benchmarks --op all_reduce -b 8 -e 16M -f 2 -g 8    one operation on eight ranks
//	go run ./benchmarks --op reduce_scatterv --skew 0.5 -J r.jsonl
//	go run ./benchmarks --op dispatch,combine --tokens 1,128 --experts 64 --topk 8 --fp8
//
// Flags have the letters and long names of nccl-tests; the columns, header and footer are its own too. It exits with 1 when
// data was wrong, or when the average bus bandwidth of an operation is below 0.9 of NCCL_TESTS_MIN_BW. docs/benchmarks.md
// defines every column.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/weftgo/weft/benchmarks/exchange"
	"github.com/weftgo/weft/benchmarks/suite"
)

// errFailed is a run that finished and found something wrong, which the tables have told.
var errFailed = errors.New("data was wrong or bandwidth too low; see the lines above")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// run is the command. Tables go to out; progress goes to a terminal if there is one.
func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	var f flags
	helped := false
	parser, err := kong.New(&f, kong.Name("benchmarks"), kong.Description(about), kong.Writers(out, errOut),
		kong.Vars{"ops": strings.Join(append(suite.Names(), exchange.Names()...), ", ")},
		kong.Exit(func(int) { helped = true }))
	if err != nil {
		return err
	}
	if _, err = parser.Parse(args); helped {
		return nil
	}
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	s, err := newSession(&f, args, out, errOut)
	if err != nil {
		return err
	}
	err = s.sweep(ctx)
	return errors.Join(err, s.close())
}

// Command peers runs weft's collectives and the same operations of Open MPI and MPICH in one go, in rounds, and prints who
// is faster in every cell, those that weft loses included.
//
//	go run ./benchmarks/peers                                   2, 4 and 8 ranks, five rounds, two minutes
//	go run ./benchmarks/peers --ranks 2 --op all_reduce --sizes 4K,2M --rounds 3
//	go run ./benchmarks/peers --from benchmarks/results/FILE    prints the table of a recorded run
//
// It needs gcc and, on Debian or Ubuntu, the packages openmpi-bin, libopenmpi-dev, mpich and libmpich-dev; what is missing it
// names. bundle.sh makes an archive for a machine without Go. docs/benchmarks.md says how the comparison is made and what is
// unfair about it.
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
	"time"

	"github.com/alecthomas/kong"

	"github.com/weftgo/weft/benchmarks/record"
	"github.com/weftgo/weft/benchmarks/suite"
)

type flags struct {
	Op     []string          `name:"op" default:"all_reduce,reduce_scatterv,all_gatherv,alltoallv" help:"Operations: ${ops}."`
	Ranks  []int             `name:"ranks" default:"2,4,8" help:"Numbers of ranks; above the number of CPUs MPICH is left out (it spins)."`
	Sizes  []string          `name:"sizes" default:"8,512,4K,32K,256K,2M,16M,64M" help:"Sizes in bytes where every rank has a CPU."`
	Over   []string          `name:"over-sizes" default:"4K,64K,2M" help:"Sizes where ranks share CPUs."`
	Lib    []string          `name:"lib" default:"openmpi,mpich" help:"Peers: openmpi, mpich."`
	Built  map[string]string `name:"built" placeholder:"LIB=PROGRAM" help:"Programs that were built elsewhere; other libraries' are built now."`
	Rounds int               `name:"rounds" short:"n" default:"5" help:"Rounds; in each, every library runs every cell."`
	Budget time.Duration     `name:"budget" default:"40ms" help:"Time for the iterations of one cell of one library in one round."`
	Skew   float64           `name:"skew" default:"0" help:"Share of rank 0 in the ragged operations; 0 means 1.25 times an even share."`
	Output string            `name:"output_file" short:"J" placeholder:"FILE" help:"Write every measurement as JSON lines."`
	From   string            `name:"from" placeholder:"FILE" help:"Print the table of a recorded run instead of measuring."`
	Table  bool              `name:"markdown" help:"With --from: print the table for a document."`
	Note   string            `name:"note" help:"A remark for the file and the table, such as: neighbours were busy."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// run is the command.
func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	var f flags
	helped := false
	parser, err := kong.New(&f, kong.Name("peers"), kong.Description("Compares weft's collectives with MPI libraries, in rounds."),
		kong.Vars{"ops": strings.Join(suite.Names(), ", ")}, kong.Writers(out, errOut), kong.Exit(func(int) { helped = true }))
	if err != nil {
		return err
	}
	if _, err = parser.Parse(args); helped || err != nil {
		return err
	}
	if f.From != "" {
		r, err := record.ReadFile(f.From)
		if err != nil {
			return err
		}
		if f.Table {
			markdown(out, r)
			return nil
		}
		return print(out, r)
	}
	groups, err := f.groups()
	if err != nil {
		return err
	}
	libs, err := build(ctx, f.Lib, f.Built)
	if err != nil {
		return err
	}
	m := &measurement{flags: &f, groups: groups, libs: libs, errOut: errOut}
	r, err := m.run(ctx, args)
	if len(r.Rows) == 0 {
		return err
	}
	return errors.Join(err, print(out, r)) // a run that was stopped shows its whole rounds
}

// Command report turns result files of the benchmarks into plots and one HTML page that compares the runs:
//
//	go run ./benchmarks -J before.jsonl                                    and again, after a change, -J after.jsonl
//	go run ./benchmarks/report -o build/report before.jsonl after.jsonl    writes build/report/index.html and its plots
//
// The page holds its plots and styles and loads nothing, so that it can be mailed or kept with the data. The first file is
// the one that others are compared with. Files of benchmarks/peers are compared too: there weft is the first series.
package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/weftgo/weft/benchmarks/record"
)

type flags struct {
	Files  []string `arg:"" name:"file" help:"Result files (-J of benchmarks and of peers); the first is what others are compared with."`
	Output string   `name:"output" short:"o" default:"build/report" help:"Folder for index.html and the plots."`
	Format []string `name:"format" default:"svg,png" help:"Formats of the separate plots: svg, png."`
	Title  string   `name:"title" default:"weft benchmarks" help:"Title of the page."`
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// unshown takes out the rows that have no place in a chart, and says how many of what are left out; "" when none are.
func unshown(r *record.Run) string {
	all := len(r.Rows)
	r.Rows = slices.DeleteFunc(r.Rows, func(row record.Row) bool { return row.Op == "" || row.TimeUs == 0 && row.Op != "copy" })
	var parts []string
	if n := all - len(r.Rows); n > 0 {
		parts = append(parts, fmt.Sprintf("%d rows without op and time_us", n))
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Others)) {
		parts = append(parts, fmt.Sprintf("%d lines of kind %s", r.Others[kind], kind))
	}
	if all == 0 {
		parts = append(parts, "no rows")
	}
	return strings.Join(parts, ", ")
}

// run is the command.
func run(args []string, out, errOut io.Writer) error {
	var f flags
	helped := false
	parser, err := kong.New(&f, kong.Name("report"), kong.Description("Plots result files and compares them on one page."),
		kong.Writers(out, errOut), kong.Exit(func(int) { helped = true }))
	if err != nil {
		return err
	}
	if _, err = parser.Parse(args); helped || err != nil {
		return err
	}
	for _, format := range f.Format {
		if !slices.Contains([]string{"svg", "png"}, format) {
			return fmt.Errorf("--format %s: use svg or png", format)
		}
	}
	var runs []record.Run
	for _, path := range f.Files {
		r, err := record.ReadFile(path)
		if err != nil {
			return err
		}
		r.Name = filepath.Base(path)
		left := unshown(&r)
		if len(r.Rows) == 0 {
			return fmt.Errorf("%s: no measurements that can be plotted (%s); -J of benchmarks and of peers and WEFT_TIMING of the GPU tests write such files", path, left)
		}
		if left != "" {
			fmt.Fprintf(errOut, "%s: not shown: %s\n", path, left)
		}
		runs = append(runs, r)
	}
	charts := arrange(runs)
	if len(charts) == 0 {
		return errors.New("the files hold no measurements")
	}
	if err := os.MkdirAll(f.Output, 0o755); err != nil {
		return err
	}
	if err := savePlots(f.Output, f.Format, charts); err != nil {
		return err
	}
	page := filepath.Join(f.Output, "index.html")
	file, err := os.Create(page)
	if err != nil {
		return err
	}
	if err := errors.Join(writePage(file, f.Title, runs, charts), file.Close()); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d charts of %d runs\n", page, len(charts), len(runs))
	return nil
}

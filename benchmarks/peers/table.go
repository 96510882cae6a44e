package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weftgo/weft/benchmarks/record"
)

const fairness = `# Fairness: weft's ranks are threads of one process, which read each other's memory in place; MPI's are processes, which must
# copy through shared memory or the kernel. That is the design that is compared, not only its code.
# Times are microseconds from a barrier to the end on the slowest rank: median of iterations, then median of rounds.
# ratio: time of the better peer / weft's, within a round, median of rounds; worst: the round that is worst for weft.
# bar: what the ratio must be; copy: bytes the operation must move / time, over the copy rate of all CPUs (bar 0.85).
# size: input of each rank; of all_gatherv the whole output. Ragged: rank 0 owns the share printed above each part.
`

// print writes the table of a run, rows that weft loses included. It is an error if data was wrong.
func print(out io.Writer, run record.Run) error {
	cells := summarize(run)
	if len(cells) == 0 {
		return errors.New("the file has no rows to compare")
	}
	h := run.Header
	fmt.Fprintf(out, "# weft %s against", h.Weft)
	var peers []string
	for name := range h.Peers {
		peers = append(peers, name)
	}
	slices.Sort(peers)
	for i, name := range peers {
		fmt.Fprintf(out, "%s %s (%s)", map[bool]string{true: " and", false: ""}[i > 0], name, h.Peers[name])
	}
	fmt.Fprintf(out, "\n# %v\n# %s\n", h.Machine, h.Time.Format("2006-01-02 15:04 UTC"))
	if h.Note != "" {
		fmt.Fprintf(out, "# note: %s\n", h.Note)
	}
	for _, r := range run.Rows {
		if r.Op == copyOp {
			fmt.Fprintf(out, "# round %d: %d CPUs copy %.1f GB/s (read and written)\n", r.Cycle+1, r.Ranks, r.CopyGBs)
		}
	}
	printPieces(out, run)
	fmt.Fprint(out, fairness)
	tally, wrong := map[string]int{}, int64(0)
	for i, c := range cells {
		if i == 0 || c.ranks != cells[i-1].ranks {
			heading(out, run, c.ranks, peers)
		}
		line(out, c, peers)
		tally[c.verdict()]++
		wrong += c.numWrong
	}
	fmt.Fprintf(out, "\n# %d cells: %d meet their bar, %d are faster but below it, %d win without a bar, %d lose\n", len(cells), tally["meets bar"],
		tally["below bar"], tally["wins"], tally["loses"])
	if wrong > 0 {
		return fmt.Errorf("%d wrong elements; see the rows marked WRONG", wrong)
	}
	return nil
}

// printPieces writes the best of what a small call is made of.
func printPieces(out io.Writer, run record.Run) {
	best := map[string]float64{}
	for _, r := range run.Rows {
		if old, ok := best[r.Op]; (r.Op == lineOp || r.Op == callOp) && r.TimeUs > 0 && (!ok || r.TimeUs < old) {
			best[r.Op] = r.TimeUs
		}
	}
	if best[lineOp] > 0 {
		fmt.Fprintf(out, "# a cache line goes from core to core in %.0f ns, a meeting of two ranks takes one way at least\n", 1e3*best[lineOp])
	}
	if best[callOp] > 0 {
		fmt.Fprintf(out, "# an all_reduce of 8 bytes in a world of one rank takes %.0f ns\n", 1e3*best[callOp])
	}
}

func heading(out io.Writer, run record.Run, ranks int, peers []string) {
	sharing := ""
	if cpus := run.Header.Machine.NumCPU; ranks > cpus {
		sharing = fmt.Sprintf(" on %d CPUs", cpus)
	}
	skew := 0.0
	for _, r := range run.Rows {
		if r.Ranks == ranks {
			skew = max(skew, r.Skew)
		}
	}
	if skew > 0 {
		sharing += fmt.Sprintf(", ragged share of rank 0: %.3g", skew)
	}
	fmt.Fprintf(out, "\n# %d ranks%s\n", ranks, sharing)
	fmt.Fprintf(out, "# %15s  %10s  %10s", "op", "size", "weft")
	for _, p := range peers {
		fmt.Fprintf(out, "  %10s", p)
	}
	fmt.Fprintf(out, "  %8s  %6s  %6s  %5s  %5s\n", "better", "ratio", "worst", "bar", "copy")
}

func line(out io.Writer, c cell, peers []string) {
	fmt.Fprintf(out, "  %15s  %10d  %10s", c.op, c.size, micros(c.times["local"]))
	for _, p := range peers {
		fmt.Fprintf(out, "  %10s", micros(c.times[p]))
	}
	bar, share := "-", "-"
	if c.bar > 0 {
		bar = fmt.Sprintf("%.2f", c.bar)
	}
	if c.ofCopy > 0 {
		share = fmt.Sprintf("%.2f", c.ofCopy)
	}
	fmt.Fprintf(out, "  %8s  %6.2f  %6.2f  %5s  %5s  %s", c.peer, c.ratio, c.worst, bar, share, c.verdict())
	if c.ofCopy > 0 && c.ofCopy < copyBar {
		fmt.Fprintf(out, ", below %.2f of copy", copyBar)
	}
	fmt.Fprintln(out)
}

func micros(us float64) string {
	switch {
	case us == 0:
		return "-"
	case us < 100:
		return fmt.Sprintf("%.2f", us)
	case us < 10000:
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.0f", us)
}

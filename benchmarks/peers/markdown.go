package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weftgo/weft/benchmarks/record"
)

// titles of the peers in documents.
var titles = map[string]string{"openmpi": "Open MPI", "mpich": "MPICH"}

// markdown writes the table of a run for a document.
func markdown(out io.Writer, run record.Run) {
	var peers []string
	for name := range run.Header.Peers {
		peers = append(peers, name)
	}
	slices.Sort(peers)
	head := []string{"ranks", "operation", "size", "weft us"}
	for _, p := range peers {
		head = append(head, titles[p]+" us")
	}
	head = append(head, "ratio", "worst round", "bar", "of copy", "verdict")
	fmt.Fprintf(out, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, c := range summarize(run) {
		line := []string{fmt.Sprint(c.ranks), c.op, short(c.size), micros(c.times["local"])}
		for _, p := range peers {
			line = append(line, micros(c.times[p]))
		}
		bar, share := "-", "-"
		if c.bar > 0 {
			bar = fmt.Sprint(c.bar)
		}
		if c.ofCopy > 0 {
			share = fmt.Sprintf("%.2f", c.ofCopy)
		}
		line = append(line, fmt.Sprintf("%.2f", c.ratio), fmt.Sprintf("%.2f", c.worst), bar, share, c.verdict())
		fmt.Fprintf(out, "| %s |\n", strings.Join(line, " | "))
	}
}

// short writes a size as people do.
func short(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

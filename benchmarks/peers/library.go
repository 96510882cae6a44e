package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weftgo/weft/benchmarks/suite"
)

//go:embed mpi
var sources embed.FS

// library is an MPI library whose program was built.
type library struct {
	name     string // openmpi, mpich
	launcher string
	program  string
	version  string
}

// launcher is the library's mpirun: the one that Debian names after it, else the only one there.
func launcher(name string) string {
	if _, err := exec.LookPath("mpirun." + name); err != nil {
		return "mpirun"
	}
	return "mpirun." + name
}

// build compiles the program with each library's compiler, in the user's cache folder, unless it was built before. All that is
// missing comes in one error.
func build(ctx context.Context, names []string, built map[string]string) ([]*library, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "weft", "peers")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{"peer.c", "build.sh"} {
		text, err := sources.ReadFile("mpi/" + name)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return nil, err
		}
	}
	var libs []*library
	var failures []error
	for _, name := range names {
		lib := &library{name: name, launcher: launcher(name), program: filepath.Join(dir, "peer."+name)}
		if program, ok := built[name]; ok {
			lib.program = program
			libs = append(libs, lib)
			continue
		}
		text, err := exec.CommandContext(ctx, "sh", filepath.Join(dir, "build.sh"), name, lib.program).CombinedOutput()
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %s (%w)", name, bytes.TrimSpace(text), err))
		}
		libs = append(libs, lib)
	}
	return libs, errors.Join(failures...)
}

// args are those of the library's launcher.
func (l *library) args(ranks int) []string {
	args := []string{"-np", fmt.Sprint(ranks)}
	if l.name == "openmpi" {
		if os.Geteuid() == 0 {
			args = append(args, "--allow-run-as-root")
		}
		if over(ranks) {
			// Ranks then yield while they wait. On a part of a machine the library does not notice by itself that they must.
			args = append(args, "--oversubscribe", "--mca", "mpi_yield_when_idle", "1")
		}
	}
	return append(args, l.program)
}

// cellTime is one cell of one round.
type cellTime struct {
	op                  string
	n, iters            int
	median, least, most float64 // microseconds; most is the 99th percentile
	wrong               int64
}

// run runs a group and returns its cells in order.
func (l *library) run(ctx context.Context, g group, t suite.Timing) ([]cellTime, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute+time.Duration(len(g.sizes))*20*t.Budget)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.launcher, l.args(g.ranks)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // the launcher then ends its ranks
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin = strings.NewReader(g.script(t))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s, %d ranks, %s: %w: %s", l.name, g.ranks, g.op.Name, err, bytes.TrimSpace(errs.Bytes()))
	}
	cells, version, err := parseCells(out.String())
	if err == nil && len(cells) != len(g.sizes) {
		err = fmt.Errorf("%d cells came back of %d", len(cells), len(g.sizes))
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %d ranks, %s: %w", l.name, g.ranks, g.op.Name, err)
	}
	l.version = version
	return cells, nil
}

// script is the program's standard input.
func (g group) script(t suite.Timing) string {
	var text strings.Builder
	for _, size := range g.sizes {
		shape := g.shape(size)
		n := shape.Count
		counts := shape.Counts
		if shape.Matrix != nil {
			counts = shape.Matrix[0] // all ranks send alike
		}
		if counts == nil {
			counts = make([]int, g.ranks)
		}
		fmt.Fprintf(&text, "%s %d %d %d %d %d", g.op.Name, t.Budget.Microseconds(), suite.MinIters, suite.MaxIters, max(1, t.Warmup), n)
		for _, c := range counts {
			fmt.Fprintf(&text, " %d", c)
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// parseCells reads the program's output.
func parseCells(text string) (cells []cellTime, version string, err error) {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if v, ok := strings.CutPrefix(line, "# "); ok {
			version = strings.Join(strings.Fields(v), " ")
			continue
		}
		var c cellTime
		if _, err := fmt.Sscan(line, &c.op, &c.n, &c.iters, &c.median, &c.least, &c.most, &c.wrong); err != nil {
			return nil, "", fmt.Errorf("line %q: %w", line, err)
		}
		cells = append(cells, c)
	}
	return cells, version, nil
}

package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/benchmarks/record"
	"github.com/weftgo/weft/benchmarks/suite"
)

var update = flag.Bool("update", false, "rewrite testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The table of a recorded run, rows that weft loses included.
func TestTableOfRecordedRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), []string{"--from", "testdata/recorded.jsonl"}, &out, io.Discard))
	golden := filepath.Join("testdata", "table.golden")
	if *update {
		require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String())
	require.Contains(t, out.String(), "loses\n")
}

func TestMarkdown(t *testing.T) {
	run := record.Run{Header: record.Header{Machine: record.Machine{NumCPU: 2}, Peers: map[string]string{"openmpi": "4"}}, Rows: []record.Row{
		row("all_reduce", "local", 4096, 0, 1), row("all_reduce", "openmpi", 4096, 0, 4),
		row("all_gatherv", "local", 8, 0, 2), row("all_gatherv", "openmpi", 8, 0, 1)}}
	var out bytes.Buffer
	markdown(&out, run)
	require.Equal(t, `| ranks | operation | size | weft us | Open MPI us | ratio | worst round | bar | of copy | verdict |
|---|---|---|---|---|---|---|---|---|---|
| 2 | all_reduce | 4 KiB | 1.00 | 4.00 | 4.00 | 4.00 | 5 | - | below bar |
| 2 | all_gatherv | 8 B | 2.00 | 1.00 | 0.50 | 0.50 | 1.2 | - | loses |
`, out.String())
	require.Equal(t, []string{"512 B", "2 MiB", "1536 B"}, []string{short(512), short(2 << 20), short(1536)})
}

func row(op, driver string, size int64, round int, us float64) record.Row {
	return record.Row{Op: op, Driver: driver, Ranks: 2, Size: size, Cycle: round, TimeUs: us}
}

func TestSummary(t *testing.T) {
	run := record.Run{Header: record.Header{Machine: record.Machine{NumCPU: 2}}, Rows: []record.Row{{Op: copyOp, CopyGBs: 10}}}
	for round, us := range [][3]float64{{1, 4, 9}, {2, 10, 9}, {1, 3, 9}} {
		run.Rows = append(run.Rows, row("all_reduce", "local", 4096, round, us[0]), row("all_reduce", "openmpi", 4096, round, us[1]),
			row("all_reduce", "mpich", 4096, round, us[2]), row("all_gatherv", "local", 16<<20, round, 8000), row("all_gatherv", "mpich", 16<<20, round, 7000))
	}
	cells := summarize(run)
	require.Len(t, cells, 2)
	c := cells[0] // the better peer is Open MPI by its median 4, though not in every round
	require.Equal(t, "openmpi", c.peer)
	require.Equal(t, []float64{1, 4, 9}, []float64{c.times["local"], c.times["openmpi"], c.times["mpich"]})
	require.Equal(t, []float64{4, 3, 5}, []float64{c.ratio, c.worst, c.bar})
	require.Equal(t, "below bar", c.verdict())
	c = cells[1]
	require.Equal(t, "loses", c.verdict())
	require.InDelta(t, 4*float64(16<<20)/8e-3/10e9, c.ofCopy, 1e-9)

	wrong := int64(3)
	run.Rows[1].Wrong = &wrong
	var out bytes.Buffer
	require.ErrorContains(t, print(&out, run), "3 wrong elements")
	require.Contains(t, out.String(), "WRONG")
	require.ErrorContains(t, print(io.Discard, record.Run{}), "no rows")
}

func TestBars(t *testing.T) {
	for _, c := range []struct {
		op   string
		size int64
		over bool
		want float64
	}{
		{"all_reduce", 8, false, 1.5}, {"all_reduce", 512, false, 1.5}, {"all_reduce", 1024, false, 0}, {"reduce_scatterv", 4096, false, 5},
		{"all_gatherv", 64 << 10, false, 2.2}, {"alltoallv", 2 << 20, false, 1.5}, {"reduce_scatterv", 64 << 20, false, 3.2},
		{"all_reduce", 4096, true, 5}, {"alltoallv", 64 << 10, true, 4}, {"all_gatherv", 8, true, 0}, {"broadcast", 8, false, 0},
	} {
		require.Equal(t, c.want, barOf(c.op, c.size, c.over), "%+v", c)
	}
	require.Equal(t, 64.0, moved("all_reduce", 16, 2))
	require.Equal(t, 48.0, moved("reduce_scatterv", 16, 2))
	require.Zero(t, moved("barrier", 16, 2))
	require.Equal(t, []float64{0, 2, 2.5}, []float64{median(nil), median([]float64{3, 1, 2}), median([]float64{4, 2, 3, 1})})
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--rounds 0":   "at least one",
		"--lib lam":    "--lib lam: use openmpi or mpich",
		"--ranks 1":    "--ranks 1 is not in [2, 64]",
		"--op no":      `no operation "no"`,
		"--sizes 4Q":   `size "4Q"`,
		"--skew 7":     "skew 7 is not in [0, 1]",
		"--from /none": "no such file",
	} {
		require.ErrorContains(t, run(context.Background(), strings.Fields(args), io.Discard, io.Discard), want, args)
	}
	f := flags{Op: []string{"alltoallv", "barrier"}, Ranks: []int{2}, Sizes: []string{"800"}, Lib: []string{"mpich"}, Rounds: 1, Budget: time.Millisecond}
	groups, err := f.groups()
	require.NoError(t, err)
	require.Len(t, groups, 2)
	require.Equal(t, "alltoallv 1000 3 2000 5 200 125 75\n", groups[0].script(suite.Timing{Warmup: 5, Budget: f.Budget}))
	require.Equal(t, []int64{0}, groups[1].sizes)
}

func TestParseCells(t *testing.T) {
	cells, version, err := parseCells("# Some  MPI\t1.2\nall_reduce 16 100 2.5 1.5 9.5 3\n")
	require.NoError(t, err)
	require.Equal(t, "Some MPI 1.2", version)
	require.Equal(t, []cellTime{{"all_reduce", 16, 100, 2.5, 1.5, 9.5, 3}}, cells)
	_, _, err = parseCells("all_reduce 16 x")
	require.ErrorContains(t, err, "all_reduce 16 x")
}

// What a small call is made of is not a cell of the table, and stands above it.
func TestPieces(t *testing.T) {
	rows, err := pieces(context.Background(), 0)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Positive(t, rows[1].TimeUs)
	rows[0].TimeUs, rows[1].TimeUs = 0.054, 0.061
	slower := rows[0]
	slower.TimeUs = 0.2
	rows = append(rows, slower, row("all_reduce", "local", 8, 0, 0.2), row("all_reduce", "mpich", 8, 0, 0.3))
	run := record.Run{Rows: rows}
	require.Len(t, summarize(run), 1)
	var out bytes.Buffer
	require.NoError(t, print(&out, run))
	require.Contains(t, out.String(), "from core to core in 54 ns")
	require.Contains(t, out.String(), "one rank takes 61 ns")
}

// What is missing is named, with the command that installs it.
func TestMissingLibraries(t *testing.T) {
	dir := t.TempDir()
	for _, tool := range []string{"sh", "dirname"} {
		path, err := exec.LookPath(tool)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(dir, tool)))
	}
	t.Setenv("PATH", dir)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, err := build(context.Background(), []string{"openmpi", "mpich"}, nil)
	require.ErrorContains(t, err, "apt-get install gcc openmpi-bin libopenmpi-dev")
	require.ErrorContains(t, err, "apt-get install gcc mpich libmpich-dev")
	libs, err := build(context.Background(), []string{"openmpi"}, map[string]string{"openmpi": "./peer"})
	require.NoError(t, err)
	require.Equal(t, []*library{{name: "openmpi", launcher: "mpirun", program: "./peer"}}, libs)
}

// Every operation through each library that is installed: what it computes is what weft computes.
func TestPeersAreRight(t *testing.T) {
	if os.Getenv("WEFT_PEERS") == "" {
		t.Skip("starts MPI processes, which spin on every core; set WEFT_PEERS=1 on a quiet machine")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	f := flags{Op: suite.Names(), Ranks: []int{2}, Sizes: []string{"8", "64K"}, Rounds: 1, Budget: 100 * time.Microsecond, Skew: 0.7}
	for _, lib := range []string{"openmpi", "mpich"} {
		t.Run(lib, func(t *testing.T) {
			libs, err := build(context.Background(), []string{lib}, nil)
			if err != nil {
				t.Skip(err)
			}
			f.Lib = []string{lib}
			groups, err := f.groups()
			require.NoError(t, err)
			m := &measurement{flags: &f, groups: groups, libs: libs, errOut: io.Discard}
			r, err := m.run(context.Background(), nil)
			require.NoError(t, err)
			require.Len(t, r.Rows, 3+2*(2*len(suite.Operations)-1)) // barrier has one size
			require.NotEmpty(t, r.Header.Peers[lib])
			for _, row := range r.Rows[3:] {
				require.Zero(t, *row.Wrong, "%s %s %d", row.Op, row.Driver, row.Size)
				require.Positive(t, row.TimeUs)
			}
			require.NoError(t, print(io.Discard, r))
		})
	}
}

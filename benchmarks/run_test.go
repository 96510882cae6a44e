package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/benchmarks/record"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

var update = flag.Bool("update", false, "rewrite testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func runText(t *testing.T, args string) (string, error) {
	var out bytes.Buffer
	err := run(context.Background(), strings.Fields(args), &out, io.Discard)
	return out.String(), err
}

// normal replaces what differs from run to run: times and rates, versions and machines.
func normal(text string) string {
	text = regexp.MustCompile(`(?m)^# (weft version|.*CPUs, ).*$`).ReplaceAllString(text, "# <version, machine>")
	text = regexp.MustCompile(`(?m)^(#  Rank .*) Pid.*$`).ReplaceAllString(text, "$1 <process>")
	text = regexp.MustCompile(`\b\d+\.\d+\b`).ReplaceAllString(text, "<x>")
	text = regexp.MustCompile(`(bandwidth +: )\S+`).ReplaceAllString(text, "$1<x>")
	return regexp.MustCompile(` +<x>`).ReplaceAllString(text, " <x>")
}

// The whole output, with the numbers that vary replaced.
func TestTables(t *testing.T) {
	got, err := runText(t, "--op all_gatherv,broadcast,barrier,dispatch,moe_layer --ranks 3 -b 64 -e 4K -f 8 -n 2 --skew 0.5 -r 1 -c 2 "+
		"--tokens 2 --hidden 32 --experts 8 --intermediate 8 --backend alltoall")
	require.NoError(t, err)
	golden := filepath.Join("testdata", "tables.golden")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(normal(got)), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), normal(got))
}

func TestResultsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.jsonl")
	_, err := runText(t, "-b 32 -e 32 -n 3 -I 1 -N 2 --ranks 2 -d half --hidden 64 --tokens 3 --intermediate 16 --zipf 1 --seed 5 -J "+path)
	require.NoError(t, err)
	r, err := record.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "benchmarks", r.Header.Tool)
	require.EqualValues(t, 5, r.Header.Seed)
	require.Contains(t, r.Header.Args, "--zipf")
	require.NotZero(t, r.Header.Time)
	ops := map[string]int{}
	for _, row := range r.Rows {
		ops[row.Op]++
		require.Equal(t, "local", row.Driver)
		require.Equal(t, 2, row.Ranks)
		require.Equal(t, 3, row.Iters)
		if row.Op != "barrier" {
			require.NotNil(t, row.Wrong, row.Op)
			require.Zero(t, *row.Wrong)
		}
		if row.MoE != nil {
			require.Equal(t, 1.0, row.MoE.Zipf)
			require.GreaterOrEqual(t, row.MoE.P99Us, row.MoE.P50Us)
			require.GreaterOrEqual(t, row.MoE.MaxOverMean, 1.0)
			require.LessOrEqual(t, row.MoE.WireGBs, row.MoE.LogicalGBs)
			continue
		}
		require.NotNil(t, row.PerIter)
		require.Equal(t, "f16", row.Type)
	}
	// Twice over: both forms where there are two; three MoE rows for each of two backends.
	require.Equal(t, map[string]int{"all_reduce": 4, "all_gather": 4, "all_gatherv": 4, "reduce_scatter": 4, "reduce_scatterv": 4,
		"alltoall": 2, "alltoallv": 2, "broadcast": 2, "reduce": 4, "sendrecv": 2, "barrier": 2, "dispatch": 4, "combine": 4,
		"moe_layer": 4}, ops)
}

// What --low-latency timed says so in the file, and agrs is not among it.
func TestLowLatencyIsNoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.jsonl")
	_, err := runText(t, "--op dispatch,combine -n 2 --ranks 2 --hidden 64 --tokens 3 --low-latency -J "+path)
	require.NoError(t, err)
	r, err := record.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, r.Rows, 2)
	for _, row := range r.Rows {
		require.Equal(t, "alltoall", row.MoE.Backend)
		require.True(t, row.MoE.LowLatency)
	}
}

// flip spoils one bit of the floats that one rank receives.
type flip struct{ comm.Conn }

func (f flip) Do(s comm.Stream, op *comm.Op) error {
	if err := f.Conn.Do(s, op); err != nil || len(op.Parts) == 0 {
		return err
	}
	if dst := op.Parts[0].Dst; dst.Rows() > 0 && dst.DType() == dtype.F32 {
		dst.RowBytes(0)[0] ^= 1
	}
	return nil
}

// spoilt runs args in a world whose rank 1 spoils data.
func spoilt(t *testing.T, args string) (string, error) {
	f, err := parse(t, strings.Fields(args)...)
	require.NoError(t, err)
	var out bytes.Buffer
	s, err := newSession(f, nil, &out, io.Discard)
	require.NoError(t, err)
	var comms []*comm.Comm
	for r, c := range s.world.Local() {
		conn := c.Conn()
		if r == 1 {
			conn = flip{conn}
		}
		comms = append(comms, comm.New(conn, r, f.Ranks))
	}
	s.world = comm.NewWorld(comms)
	err = s.sweep(context.Background())
	require.NoError(t, s.close())
	return out.String(), err
}

func TestWrongDataFails(t *testing.T) {
	out, err := spoilt(t, "--op all_reduce --ranks 2 -b 64 -e 64 -n 1 -c 3")
	require.ErrorIs(t, err, errFailed)
	require.Contains(t, out, "# Out of bounds values : 6 FAILED") // one element, three checks, two forms

	out, err = spoilt(t, "--op combine --backend agrs --ranks 2 --tokens 4 --hidden 8 --experts 4 --topk 2 -n 1")
	require.ErrorIs(t, err, errFailed)
	require.Contains(t, out, "FAILED")

	out, err = spoilt(t, "--op all_reduce --ranks 2 -b 64 -e 64 -n 1 -c 0")
	require.NoError(t, err)
	require.Contains(t, out, "N/A")
}

func TestMinimumBandwidth(t *testing.T) {
	t.Setenv("NCCL_TESTS_MIN_BW", "1e9")
	out, err := runText(t, "--op all_reduce --ranks 2 -b 64 -e 64 -n 1")
	require.ErrorIs(t, err, errFailed)
	require.Contains(t, out, "FAILED: below 0.9 of NCCL_TESTS_MIN_BW")
	t.Setenv("NCCL_TESTS_MIN_BW", "1e-9")
	out, err = runText(t, "--op all_reduce --ranks 2 -b 64 -e 64 -n 1")
	require.NoError(t, err)
	require.Regexp(t, `bandwidth    : \S+ OK`, out)
	t.Setenv("NCCL_TESTS_MIN_BW", "x")
	_, err = runText(t, "--op barrier")
	require.ErrorContains(t, err, "not a number")
}

func TestWhatDoesNotApplyIsSaid(t *testing.T) {
	out, err := runText(t, "--op sendrecv,barrier --ranks 1 -b 8 -e 8 -n 1 -M 1 -S 1")
	require.NoError(t, err)
	require.Contains(t, out, "# sendrecv needs 2 ranks, there are 1")
	require.Regexp(t, `(?m)^ +0 +0 +none .* \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$`, out)
	_, err = runText(t, "--op sendrecv --ranks 1 -b 8 -e 8 -n 1")
	require.ErrorContains(t, err, "needs 2 ranks")
	_, err = runText(t, "--op moe_layer --ranks 2 --hidden 16 -n 1")
	require.ErrorContains(t, err, "hidden 16 < 32 experts")
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := run(ctx, []string{"--op", "barrier", "-N", "0"}, io.Discard, io.Discard)
	require.Error(t, err)
}

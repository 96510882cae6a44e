//go:build unix

package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// command runs the command line and returns its exit status and outputs.
func command(args ...string) (int, string, string) {
	var out, errs bytes.Buffer
	code := run(args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestLaunchCommand(t *testing.T) {
	code, out, _ := command("launch", "-n", "2", "--", "sh", "-c", `echo "$0 $1 $WEFT_RANK"`, "-x", "--nproc=7")
	require.Zero(t, code)
	require.Contains(t, out, "[0] -x --nproc=7 0\n", "flags of the program are its own")
	require.Contains(t, out, "[1] -x --nproc=7 1\n")
	code, out, errs := command("launch", "--no-prefix", "--", "sh", "-c", "echo x; exit 3")
	require.Equal(t, 3, code)
	require.Equal(t, "x\n", out)
	require.NotContains(t, errs, "exit status", "the launcher has said what happened")
	for want, args := range map[string][]string{
		"--max-restarts: only 0":      {"launch", "--max-restarts", "1", "--", "true"},
		"3 nodes need --rdzv":         {"launch", "--nnodes", "3", "--", "true"},
		"start /no/such/program":      {"launch", "--", "/no/such/program"},
		"-n 0: at least 1 process":    {"launch", "-n", "0", "--", "true"},
		"--nnodes -1: at least 1":     {"launch", "--nnodes=-1", "--", "true"},
		"give a program after --":     {"launch", "-n", "2"},
		"give a program after --, as": {"launch", "-n", "2", "--"},
	} {
		code, _, errs := command(args...)
		require.Equal(t, 1, code)
		require.Contains(t, errs, want)
	}
}

// examples/allreduce under weft launch, as its documentation says.
func TestLaunchExample(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program; not with -short")
	}
	program := filepath.Join(t.TempDir(), "allreduce")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../examples/allreduce").CombinedOutput()
	require.NoError(t, err, "%s", out)
	code, text, errs := command("launch", "-n", "2", "--", program, "-ranks", "4", "-gpu", "1000")
	require.Zero(t, code, errs)
	require.Equal(t, "[0] 8 ranks of 2 processes, the sum of {1, rank, rank*rank} is [8 28 140], by the store\n", text)
	code, _, _ = command("launch", "-n", "2", "--", "sh", "-c", "exec "+program+" -ranks $((1 + 64 * WEFT_RANK)) -gpu 1000")
	require.Equal(t, 1, code, "65 ranks are too many for process 1")
}

// The doctor's report is shown to others.
func TestDoctorKeepsTheToken(t *testing.T) {
	t.Setenv("WEFT_TOKEN", "hush")
	for _, args := range [][]string{{"doctor"}, {"doctor", "--json"}} {
		_, out, _ := command(args...)
		require.NotContains(t, out, "hush")
		require.Contains(t, out, "WEFT_TOKEN")
	}
}

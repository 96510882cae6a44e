package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func judge(t *testing.T, in string, args ...string) (out, errOut string, err error) {
	var o, e bytes.Buffer
	err = run(t.Context(), args, strings.NewReader(in), &o, &e)
	return o.String(), e.String(), err
}

// The experiment itself, small: seven layouts, the same answers, counters equal to their formulas.
func TestExperiment(t *testing.T) {
	dir := t.TempDir()
	file, traceFile := filepath.Join(dir, "out.json"), filepath.Join(dir, "trace.json")
	out, _, err := judge(t, "", "--requests", "8", "--concurrency", "5", "--json", file, "--trace", traceFile, "-v")
	require.NoError(t, err, out)

	var got struct {
		Layouts []struct {
			Name         string
			RequestsPerS float64 `json:"requests_per_s"`
			P50          float64 `json:"p50_ms"`
			P99          float64 `json:"p99_ms"`
			Accuracy     float64
			Same         bool  `json:"same_as_tp8"`
			Steps        int64 `json:"forwards"`
			Counters     []counter
			Formulas     []formula
			Copies       copies
			Shares       []share `json:"time_per_rank"`
		}
	}
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &got))
	require.Len(t, got.Layouts, 7)
	kinds := map[string][]string{}
	var names []string
	for _, l := range got.Layouts {
		names = append(names, l.Name)
		require.Contains(t, out, l.Name)
		require.Positive(t, l.RequestsPerS, l.Name)
		require.LessOrEqual(t, l.P50, l.P99, l.Name)
		require.Equal(t, 1.0, l.Accuracy, l.Name)
		require.True(t, l.Same, l.Name)
		require.Len(t, l.Shares, 8, l.Name)
		require.Len(t, l.Formulas, len(l.Counters), l.Name)
		for i, c := range l.Counters {
			require.Equal(t, formula{c.Kind, c.Calls, c.Bytes}, l.Formulas[i], l.Name)
			require.True(t, c.Equal, "%s: %+v", l.Name, c)
			kinds[l.Name] = append(kinds[l.Name], c.Kind)
			switch c.Kind { // eight ranks, four layers, all of them MoE
			case "all_reduce":
				require.Equal(t, 2*4*8*l.Steps, c.Calls, l.Name)
			case "reduce_scatterv":
				if l.Name == "dp8" || l.Name == "dp8+ep8:agrs" {
					require.Equal(t, 4*8*l.Steps, c.Calls, l.Name)
				}
			}
		}
		if l.Name == "dp8+ep8:alltoall" {
			require.Equal(t, l.Copies.Routing, l.Copies.PerToken)
			require.Greater(t, l.Copies.PerToken, 1.0)
			require.LessOrEqual(t, l.Copies.PerToken, 4.0) // top-4
		}
	}
	require.Equal(t, []string{"tp8", "tp8+ep8", "dp2tp4+ep8", "dp4tp2+ep8", "dp8", "dp8+ep8:agrs", "dp8+ep8:alltoall"}, names)
	require.Equal(t, []string{"all_reduce", "all_gather"}, kinds["tp8"], "all_gather: the vocabulary")
	require.Equal(t, []string{"all_gatherv", "reduce_scatterv"}, kinds["dp8+ep8:agrs"])
	require.Equal(t, []string{"all_gather", "alltoallv"}, kinds["dp8+ep8:alltoall"])
	checkTrace(t, traceFile)
}

func checkTrace(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var events struct {
		TraceEvents []struct{ Name, Ph string }
	}
	require.NoError(t, json.Unmarshal(raw, &events))
	seen := map[string]bool{}
	for _, e := range events.TraceEvents {
		name, _, _ := strings.Cut(e.Name, "(")
		if strings.HasPrefix(name, "execute_context_") {
			require.Regexp(t, `^execute_context_\d+\(\d+\)_generation_\d+\(\d+\)$`, e.Name)
			name = "execute"
		}
		seen[name] = true
	}
	for _, name := range []string{"execute", "dummy_step", "lockstep", "attention", "router", "experts", "all_reduce", "all_gatherv", "alltoallv"} {
		require.True(t, seen[name], "no span %q in the trace", name)
	}
}

func TestHelp(t *testing.T) {
	out, _, err := judge(t, "", "--help")
	require.NoError(t, err)
	for _, flag := range []string{"--requests", "--concurrency", "--layouts", "--profile", "--json", "--trace", "--devices", "complete"} {
		require.Contains(t, out, flag)
	}
}

func TestBadFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		text string
	}{
		{[]string{"--layouts", "tp8+ep4"}, "write +ep8"},
		{[]string{"--layouts", "tp16"}, "16"},
		{[]string{"--requests", "-3"}, "-3"},
		{[]string{"--profile", "long"}, "short"},
		{[]string{"--model", "/nowhere"}, "/nowhere"},
		{[]string{"--model", "../internal/checkpoint/testdata/odd-a"}, "tokenizer"},
		{[]string{"--frobnicate"}, "frobnicate"},
		{[]string{"complete", "--layout", "dp99"}, "1 to 64"},
		{[]string{"complete", "--input", "/nowhere"}, "/nowhere"},
		{[]string{"complete", "--model", t.TempDir()}, "config.json"},
	} {
		_, _, err := judge(t, "", c.args...)
		require.ErrorContains(t, err, c.text, "%v", c.args)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var o, e bytes.Buffer
	require.ErrorIs(t, run(ctx, []string{"--requests", "4", "--layouts", "tp2"}, nil, &o, &e), context.Canceled)
}

func TestFurthest(t *testing.T) {
	nan := float32(0)
	nan /= nan
	require.Equal(t, 0.5, furthest([]float32{1, 2}, []float32{1, 2.5}))
	require.True(t, furthest([]float32{1}, nil) > 1e9)
	require.True(t, furthest([]float32{nan}, []float32{1}) > 1e9)
}

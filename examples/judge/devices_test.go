package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/gputest"
)

// Four layouts with their collectives on a GPU that eight ranks share: the same bits as on the CPU, and counters that equal
// their formulas.
func TestExperimentOnDevices(t *testing.T) {
	gputest.Device(t)
	file := filepath.Join(t.TempDir(), "out.json")
	out, _, err := judge(t, "", "--requests", "6", "--concurrency", "6", "--devices", "cuda:0x8", "--json", file,
		"--layouts", "tp8,tp8+ep8,dp8+ep8:agrs,dp8+ep8:alltoall")
	t.Log(out)
	require.NoError(t, err)
	var got struct {
		Layouts  []row
		Versions map[string]string
	}
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &got))
	require.Len(t, got.Layouts, 8)
	require.NotEmpty(t, got.Versions["gpu"])
	require.NotEmpty(t, got.Versions["cuda"])
	for i, r := range got.Layouts {
		require.Equal(t, []string{"", "cuda:0x8"}[i%2], r.Devices, r.Name)
		require.Zero(t, r.BitsDiffer, r.Name)
		require.Empty(t, r.Problems, r.Name)
		require.Equal(t, 1.0, r.Accuracy, r.Name)
		for _, c := range r.Counters {
			require.True(t, c.Equal, "%s: %+v", r.Name, c)
		}
		if r.Devices != "" {
			require.Contains(t, out, r.Name+": ids and log-probabilities are bit for bit those of the CPU")
		}
	}
	require.Contains(t, out, "still run on the host")
}

// Without a GPU, or with as many as do not fit a layout, the flag is refused before anything is loaded.
func TestDevicesRefused(t *testing.T) {
	_, progress, err := judge(t, "", "--layouts", "tp2", "--requests", "1", "--devices", "cuda:0x3")
	require.ErrorIs(t, err, comm.Invalid)
	require.Empty(t, progress, "tp2 did not run on the CPU first")
	require.ErrorContains(t, err, "they are for 3 ranks, not 2")
	_, _, err = judge(t, "", "complete", "--layout", "tp2", "--devices", "cuda:0x2")
	if !errors.Is(err, comm.Unavailable) {
		gputest.Device(t)
		require.NoError(t, err)
	}
}

// The bits of a run on GPUs are compared one by one.
func TestCompareBits(t *testing.T) {
	a := []answer{{ids: []int32{1}, logprobs: []float32{0.5}, top: [][]float32{{0.5, 0.25}}}}
	b := []answer{{ids: []int32{1}, logprobs: []float32{0.5}, top: [][]float32{{0.5, 0.25000003}}}}
	x := new(experiment)
	cpu, gpu := new(row), &row{Name: "tp2 cuda:0x2", Devices: "cuda:0x2"}
	x.compareBits(cpu, a)
	x.compareBits(gpu, a)
	require.Empty(t, gpu.Problems)
	x.compareBits(gpu, b)
	require.Equal(t, []string{"1 of 1 answers differ from those of the same layout on the CPU"}, gpu.Problems)
}

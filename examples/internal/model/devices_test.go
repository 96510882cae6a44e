package model

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/comm/staged"
	"github.com/weftgo/weft/internal/gputest"
)

// layersOf runs a plan and returns what every layer left on every rank, and the logits.
func layersOf(t testing.TB, w *comm.World, l layout, prompts []*golden, o planOptions) map[string][]float32 {
	f, err := oddFolder()
	require.NoError(t, err)
	out := map[string][]float32{}
	var mu sync.Mutex
	keep := func(name string, rows []float32) {
		mu.Lock()
		defer mu.Unlock()
		out[name] = slices.Concat(out[name], rows)
	}
	p := makePlan(prompts, o)
	watch := func(m *Model) {
		rank := m.world.Rank()
		m.probe = func(at probePoint, layer int, rows []float32) {
			keep(fmt.Sprint("rank ", rank, ", point ", at, ", layer ", layer), rows)
		}
	}
	runPlanOn(t, w, f, l, Config{BlockSize: o.blockSize, MaxBatchedTokens: o.maxTokens}, p, watch, func(pl *planned, logits []float32) {
		for i, r := range pl.rows {
			keep(fmt.Sprint("logits ", len(r.prompt.IDs), "/", r.at), logits[i*f.Config.VocabSize:(i+1)*f.Config.VocabSize])
		}
	})
	require.NoError(t, w.Close(t.Context()))
	require.NotEmpty(t, out)
	return out
}

// The output of every layer on every rank, with the collectives on a GPU that all ranks share, has the bits of the CPU.
func TestLayersOnDevices(t *testing.T) {
	gputest.Device(t)
	for _, l := range slices.Concat(layouts[2:], oddLayouts) {
		t.Run(l.name, func(t *testing.T) {
			o := planOptions{replicas: l.parallel.DP, blockSize: 16, maxTokens: 64, echo: true, decode: 2}
			cpu, err := local.Open(local.Config{Ranks: l.parallel.Size(), Timeout: 20 * time.Second})
			require.NoError(t, err)
			want := layersOf(t, cpu, l, oddGoldens(), o)
			devices := make([]comm.Device, l.parallel.Size())
			for i := range devices {
				devices[i].Kind = comm.CUDA
			}
			below, err := p2p.Open(t.Context(), p2p.Config{Devices: devices, Timeout: 20 * time.Second})
			require.NoError(t, err)
			gpu, err := staged.Open(below, staged.Config{})
			require.NoError(t, err)
			start := time.Now()
			requireSameBits(t, want, layersOf(t, gpu, l, oddGoldens(), o), l.name)
			t.Logf("RESULT %s: %d outputs of layers and logits of all ranks have the bits of the CPU, in %v", l.name, len(want), time.Since(start).Round(time.Millisecond))
		})
	}
}

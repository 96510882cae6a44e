package deploy

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/bundled"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/examples/internal/layout"
	"github.com/weftgo/weft/internal/patience"
)

// A rank that stalls in the middle of a step is named, and only that rank: by the step timeout, also where nobody waits for it, and
// by the collectives' timeout.
func TestStalledRank(t *testing.T) {
	for _, c := range []struct {
		layout string
		rank   int
		byStep bool
	}{
		{"tp1", 0, true},
		{"tp2", 1, true},
		{"dp2tp2+ep4:agrs", 2, true},
		{"dp4+ep4:alltoall", 3, true},
		{"dp4+ep4:alltoall", 0, true},
		{"tp2", 1, false},
		{"dp4+ep4:alltoall", 2, false},
	} {
		t.Run(fmt.Sprintf("%s/rank%d/step%v", c.layout, c.rank, c.byStep), func(t *testing.T) {
			patience.Try(t, 300*time.Millisecond, func(t testing.TB, wait time.Duration) {
				cfg, text := Config{StepTimeout: time.Hour, Timeout: wait}, fmt.Sprintf("rank %d", c.rank)
				if c.byStep {
					cfg, text = Config{StepTimeout: wait, Timeout: time.Hour}, fmt.Sprintf("step timeout %v: rank %d in forward for", wait, c.rank)
				}
				stall(t, c.layout, c.rank, cfg, text)
			})
		})
	}
}

// stall lets a rank stall, and wants text in the error.
func stall(t testing.TB, name string, rank int, cfg Config, text string) {
	folder, err := checkpoint.OpenFS(bundled.FS(), bundled.Name)
	require.NoError(t, err)
	defer folder.Close()
	cfg.Layout, err = layout.Parse(name)
	require.NoError(t, err)
	cfg.MaxModelLen, cfg.MaxBatchedTokens = 128, 128
	d, err := Open(t.Context(), folder, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	stalled := make(chan struct{})
	defer func() {
		close(stalled)
		require.Error(t, d.Close(ctx))
		<-d.Engine.Done()
	}()
	d.Models[rank].MoELayers()[1].SetObserver(func([]int32, []float32) { <-stalled })
	begun := time.Now()
	h, err := d.Engine.Submit(ctx, engine.Request{IDs: []int32{1, 2, 3}, MaxTokens: 4})
	require.NoError(t, err)
	_, err = h.Wait(ctx)
	require.ErrorIs(t, err, engine.ErrDead)
	require.ErrorIs(t, err, comm.Timeout)
	require.ErrorContains(t, err, text)
	require.NotRegexp(t, "rank [0-9]+ in forward.*rank [0-9]+ in forward", err.Error())
	require.Less(t, time.Since(begun), 20*time.Second)
}

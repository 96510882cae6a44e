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
)

// A rank that stalls in the middle of a step is named, and only that rank: by the step timeout, also where nobody waits for it, and
// by the collectives' timeout.
func TestStalledRank(t *testing.T) {
	const soon, never = 300 * time.Millisecond, time.Hour
	for _, c := range []struct {
		layout string
		rank   int
		cfg    Config
		text   string
	}{
		{"tp1", 0, Config{StepTimeout: soon, Timeout: never}, "step timeout 300ms: rank 0 in forward for"},
		{"tp2", 1, Config{StepTimeout: soon, Timeout: never}, "step timeout 300ms: rank 1 in forward for"},
		{"dp2tp2+ep4:agrs", 2, Config{StepTimeout: soon, Timeout: never}, "step timeout 300ms: rank 2 in forward for"},
		{"dp4+ep4:alltoall", 3, Config{StepTimeout: soon, Timeout: never}, "step timeout 300ms: rank 3 in forward for"},
		{"dp4+ep4:alltoall", 0, Config{StepTimeout: soon, Timeout: never}, "step timeout 300ms: rank 0 in forward for"},
		{"tp2", 1, Config{StepTimeout: never, Timeout: soon}, "rank 1"},
		{"dp4+ep4:alltoall", 2, Config{StepTimeout: never, Timeout: soon}, "rank 2"},
	} {
		t.Run(fmt.Sprintf("%s/rank%d/step%v", c.layout, c.rank, c.cfg.StepTimeout), func(t *testing.T) {
			folder, err := checkpoint.OpenFS(bundled.FS(), bundled.Name)
			require.NoError(t, err)
			defer folder.Close()
			c.cfg.Layout, err = layout.Parse(c.layout)
			require.NoError(t, err)
			c.cfg.MaxModelLen, c.cfg.MaxBatchedTokens = 128, 128
			d, err := Open(t.Context(), folder, c.cfg)
			require.NoError(t, err)
			stalled := make(chan struct{})
			d.Models[c.rank].MoELayers()[1].SetObserver(func([]int32, []float32) { <-stalled })
			begun := time.Now()
			h, err := d.Engine.Submit(t.Context(), engine.Request{IDs: []int32{1, 2, 3}, MaxTokens: 4})
			require.NoError(t, err)
			_, err = h.Wait(t.Context())
			require.ErrorIs(t, err, engine.ErrDead)
			require.ErrorIs(t, err, comm.Timeout)
			require.ErrorContains(t, err, c.text)
			require.NotRegexp(t, "rank [0-9]+ in forward.*rank [0-9]+ in forward", err.Error())
			require.Less(t, time.Since(begun), 20*time.Second)
			close(stalled)
			<-d.Engine.Done()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			require.Error(t, d.Close(ctx))
		})
	}
}

package deploy

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/bundled"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/examples/internal/layout"
)

// TestSoak sends at least 2,000 random requests (100 with -short) with random aborts through the real model on dp8+ep8, and
// goes on for WEFT_SOAK. Afterwards no block is held, every rank has made the same collective calls, and what was
// moved is what the formula says. TestMain looks for goroutines that are left.
func TestSoak(t *testing.T) {
	least, until := int64(2000), time.Now()
	if testing.Short() {
		least = 100
	} else if s := os.Getenv("WEFT_SOAK"); s != "" {
		d, err := time.ParseDuration(s)
		require.NoError(t, err)
		until = until.Add(d)
	}
	folder, err := checkpoint.OpenFS(bundled.FS(), bundled.Name)
	require.NoError(t, err)
	l, err := layout.Parse("dp8+ep8:alltoall")
	require.NoError(t, err)
	// A cache of few blocks, so that requests are preempted too.
	d, err := Open(t.Context(), folder, Config{Layout: l, MaxBatchedTokens: 1024, MaxModelLen: 200, MaxSeqs: 16, BlockSize: 16, CacheTokens: 256})
	require.NoError(t, err)

	var sent atomic.Int64
	var wg sync.WaitGroup
	for client := range 64 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(client)))
			for sent.Add(1) <= least || time.Now().Before(until) {
				request(t, d, rng)
			}
		})
	}
	wg.Wait()
	total := d.Engine.Stats().Total()
	require.NoError(t, d.Stop(t.Context()))
	require.Zero(t, total.KVUsed)
	require.Zero(t, total.Running+total.Waiting)
	require.Zero(t, total.Failed)
	require.Positive(t, total.Aborted)
	require.True(t, testing.Short() || total.Preemptions > 0)
	t.Logf("%d requests, %d of them aborted, %d preemptions", sent.Load(), total.Aborted, total.Preemptions)

	first := d.Models[0].Stats()
	for r, m := range d.Models {
		for k, c := range m.Stats() {
			require.Equal(t, first[k].Calls, c.Calls, "%v of rank %d", comm.OpKind(k), r)
		}
	}
	require.Equal(t, d.Formula(), d.Measured())
	require.NoError(t, d.Close(t.Context()))
	require.NoError(t, folder.Close())
}

// request sends one random request and, one time in three, gives it up after a moment.
func request(t *testing.T, d *Deployment, rng *rand.Rand) {
	ids := make([]int32, 1+rng.IntN(40))
	for i := range ids {
		ids[i] = int32(rng.IntN(2045))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h, err := d.Engine.Submit(ctx, engine.Request{IDs: ids, MaxTokens: 1 + rng.IntN(30), Logprobs: rng.IntN(3) - 1, IgnoreEOS: rng.IntN(2) == 0})
	if err != nil {
		t.Error(err)
		return
	}
	if rng.IntN(3) == 0 {
		time.AfterFunc(time.Duration(rng.IntN(20))*time.Millisecond, cancel)
	}
	if _, err := h.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

package p2p_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/internal/proctest"
)

// TestIPCWithout lets rank 1 of three processes stall. The others close their parts and open, through the store that still lives, a
// world of two under another name.
func TestIPCWithout(t *testing.T) {
	if !proctest.Child() {
		gputest.Device(t)
	}
	store, r := proctest.Run(t, proctest.Config{Processes: 3, Timeout: 60 * time.Second})
	if r != nil {
		report(t, r)
		return
	}
	gputest.Device(t)
	ctx, job := t.Context(), store.Job()
	cfg := p2p.Config{Devices: []comm.Device{{Kind: comm.CUDA}}, FirstRank: job.Rank, Size: job.Size, Store: store, Workspace: 64 << 20, Timeout: 8 * time.Second}
	w, err := p2p.Open(ctx, cfg)
	require.NoError(t, err)
	const dead = 1
	err = w.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == dead {
			<-w.Done()
			return nil
		}
		return errors.Join(c.Barrier(comm.Stream{}), c.Wait(ctx, comm.Stream{}))
	})
	if job.Rank == dead {
		_ = w.Close(ctx)
		_, err = store.Get(ctx, "over") // the store would be lost with this process
		require.NoError(t, err)
		return
	}
	require.Equal(t, dead, comm.Blamed(err), "%v", err)
	_, err = w.Without(ctx, dead)
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "Config.Without")
	_ = w.Close(ctx) // it may say that the world is dead
	left, err := cfg.Without(dead)
	require.NoError(t, err)
	left.Name, left.Timeout = "without 1", 20*time.Second
	next, err := p2p.Open(ctx, left)
	require.NoError(t, err)
	require.Equal(t, 2, next.Size())
	require.NoError(t, next.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		require.Equal(t, job.Rank/2, c.Rank())
		x, err := comm.Alloc(c, dtype.I32, 1, 1)
		if err != nil {
			return err
		}
		got := []int32{int32(job.Rank + 10)}
		err = errors.Join(comm.Copy(c, comm.Stream{}, x, comm.Of(got, 1)), c.AllReduce(comm.Stream{}, x, x, comm.Sum),
			comm.Copy(c, comm.Stream{}, comm.Of(got, 1), x))
		require.Equal(t, []int32{10 + 12}, got)
		return err
	}))
	require.NoError(t, next.Close(ctx))
	if job.Rank == 0 {
		require.NoError(t, store.Set(ctx, "over", nil))
	}
}

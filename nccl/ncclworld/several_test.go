package ncclworld_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/nccl"
	"github.com/weftgo/weft/nccl/ncclworld"
)

// One process with a rank on each of several GPUs: NCCL over NVLink, groups from as many goroutines, calls that differ.
func TestGPUSeveral(t *testing.T) {
	gputest.Devices(t, 2)
	gputest.Library(t, nccl.Init())
	n, err := cuda.Count()
	require.NoError(t, err)
	for _, blocking := range []bool{false, true} {
		for size := 2; size <= n; size *= 2 {
			t.Run(fmt.Sprintf("ranks %d blocking %v", size, blocking), func(t *testing.T) {
				w, err := ncclworld.Open(t.Context(), ncclworld.Config{Devices: gpus(size), Options: nccl.Options{Blocking: blocking}})
				require.NoError(t, err)
				require.NoError(t, w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error { return oracle(ctx, w, c) }))
				require.NoError(t, w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error { return disagree(ctx, c) }))
				require.NoError(t, w.Close(t.Context()))
			})
		}
	}
}

// disagree lets the last rank call another operation: all are told, and go on.
func disagree(ctx context.Context, c *comm.Comm) error {
	b, err := comm.Alloc(c, dtype.F32, 4, 4)
	if err != nil {
		return err
	}
	call := func() error { return c.AllReduce(comm.Stream{}, b, b, comm.Sum) }
	if c.Rank() == c.Size()-1 {
		call = func() error { return c.Broadcast(comm.Stream{}, b, 0) }
	}
	if err = call(); err == nil {
		err = c.Wait(ctx, comm.Stream{})
	}
	fmt.Println("disagree:", err)
	if !errors.Is(err, comm.Invalid) {
		return fmt.Errorf("rank %d: got %v where invalid was due", c.Rank(), err)
	}
	if err = c.AllReduce(comm.Stream{}, b, b, comm.Sum); err != nil {
		return err
	}
	return c.Wait(ctx, comm.Stream{})
}

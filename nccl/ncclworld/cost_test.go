//go:build linux && cgo && weft_cost

package ncclworld_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/nccl"
	"github.com/weftgo/weft/nccl/ncclworld"
)

// burst is the enqueues between two waits: few enough for the stream's queue.
const burst = 64

// The host cost of an enqueue: NCCL's own call in a loop in C, the binding's, and the driver's, in turns in one process, on
// one communicator and stream (the driver has its own). Figures are those of the fastest of 60 bursts. Build with -tags weft_cost.
func TestGPUCost(t *testing.T) {
	d, s := gpu(t)
	src, err := d.Alloc(4 * 2048)
	require.NoError(t, err)
	for _, inPlace := range []bool{true, false} { // for one rank NCCL does nothing in place, and copies otherwise
		for _, blocking := range []bool{true, false} {
			id, err := nccl.UniqueID()
			require.NoError(t, err)
			c, err := nccl.NewCommunicator(t.Context(), d, 1, 0, id, nccl.Options{Blocking: blocking})
			require.NoError(t, err)
			w, err := ncclworld.Open(t.Context(), ncclworld.Config{Devices: []comm.Device{{Kind: comm.CUDA}}, Options: nccl.Options{Blocking: blocking}})
			require.NoError(t, err)
			k := w.Local()[0]
			b, err := comm.Alloc(k, dtype.F32, 2, 1024)
			require.NoError(t, err)
			to := b.Slice(1, 2)
			call := nccl.Call{Kind: nccl.AllReduce, Src: uint64(src), Dst: uint64(src) + 4096, Count: 1024, Type: nccl.Float32}
			if inPlace {
				to, call.Dst = b.Slice(0, 1), call.Src
			}
			least := [3]float64{1e18, 1e18, 1e18}
			for range 60 {
				inC := nccl.RepeatC(c, s, call, burst)
				require.Positive(t, inC)
				least[0] = min(least[0], inC)
				require.NoError(t, s.Wait(t.Context()))
				least[1] = min(least[1], timed(t, func() error { return c.Enqueue(t.Context(), s, call) }))
				require.NoError(t, s.Wait(t.Context()))
				least[2] = min(least[2], timed(t, func() error { return k.AllReduce(comm.Stream{}, to, b.Slice(0, 1), comm.Sum) }))
				require.NoError(t, k.Wait(t.Context(), comm.Stream{}))
			}
			t.Logf("cost: one all_reduce of 4 KiB on one rank, in place %v, blocking %v: C %.0f ns, binding %.0f ns (%+.0f), driver %.0f ns (%+.0f)",
				inPlace, blocking, least[0], least[1], least[1]-least[0], least[2], least[2]-least[0])
			require.LessOrEqual(t, least[1]-least[0], 1000.0, "the binding's own cost, ns")
			require.LessOrEqual(t, least[2]-least[0], 1000.0, "the driver's own cost, ns")
			require.NoError(t, comm.Free(k, b))
			require.NoError(t, w.Close(t.Context()))
			require.NoError(t, c.Destroy())
		}
	}
	require.NoError(t, d.Free(src))
}

// timed returns the nanoseconds of one of a burst of enqueues.
func timed(t *testing.T, enqueue func() error) float64 {
	begin := time.Now()
	for range burst {
		if err := enqueue(); err != nil {
			t.Fatal(err)
		}
	}
	return float64(time.Since(begin)) / burst
}

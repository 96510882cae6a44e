package p2p

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/dtype"
)

// TestSanitized is what benchmarks/gpu/sanitize.sh runs under compute-sanitizer: every kernel, small, with deadlines that a
// program which runs a hundred times slower still meets. WEFT_SANITIZE_ROUNDS is how many random calls it makes.
func TestSanitized(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("WEFT_SANITIZE_ROUNDS"))
	if err != nil {
		rounds = 12
	}
	t.Run("pointers", func(t *testing.T) { callersPointers(t, 3, rounds, time.Minute) })
	t.Run("kernels", func(t *testing.T) { everyKernel(t, openWorld(t, 2, time.Minute)) })
}

// everyKernel uses what random calls on callers' memory leave out: small and large sums, counts on the device, messages, groups,
// and graphs.
func everyKernel(t *testing.T, w *comm.World) {
	ready := &turnstile{n: w.Size(), open: make(chan struct{})}
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		s := comm.Stream{}
		for _, typ := range []dtype.DType{dtype.F32, dtype.BF16, dtype.F16, dtype.F8E4M3, dtype.I64} {
			for _, cols := range []int{64, 4097} {
				a, b := must(tb, c, typ, 8, cols), must(tb, c, typ, 8, cols)
				require.NoError(tb, errors.Join(c.AllReduce(s, b.Slice(0, 1), a.Slice(0, 1), comm.Sum), c.AllReduce(s, b, a, comm.Sum),
					c.AllReduce(s, b, a, comm.Min), c.AllGather(s, b, a.Slice(0, 4)), c.ReduceScatter(s, b.Slice(0, 4), a, comm.Sum)))
				require.NoError(tb, c.Wait(ctx, s), "%v", typ)
			}
		}
		x, y := must(tb, c, dtype.BF16, 16, 40), must(tb, c, dtype.BF16, 32, 40)
		own, all := must(tb, c, dtype.I32, 1, 2), must(tb, c, dtype.I32, 1, 2)
		require.NoError(tb, comm.Copy(c, s, own, comm.Of([]int32{3, 1}, 2)))
		n := comm.OnDevice(own.Columns(0, 1), all, 16)
		part := comm.Part{Dst: y, Src: x}
		require.NoError(tb, errors.Join(c.AllGatherV(s, n, part), c.ReduceScatterV(s, n, comm.Sum, comm.Part{Dst: x, Src: y}),
			c.AllToAllV(s, comm.OnDevice(own, comm.Buffer{}, 16), comm.OnDevice(comm.Buffer{}, all, 16), part)))
		if c.Rank() == 0 {
			require.NoError(tb, errors.Join(c.Send(s, x, 1), c.Recv(s, y.Slice(0, 16), 1)))
		} else {
			require.NoError(tb, errors.Join(c.Recv(s, y.Slice(0, 16), 0), c.Send(s, x, 0)))
		}
		require.NoError(tb, c.Wait(ctx, s))
		sub, err := c.Split(ctx, 0, -c.Rank())
		require.NoError(tb, err)
		require.NoError(tb, errors.Join(sub.AllReduce(s, x, x, comm.Max), sub.Wait(ctx, s), sub.Close(ctx)))

		st, err := device(tb).NewStream(0)
		require.NoError(tb, err)
		s.Handle = st.Handle()
		graph, err := st.Capture(func() error { return errors.Join(c.AllReduce(s, x, x, comm.Sum), c.Barrier(s)) })
		require.NoError(tb, err)
		exec, err := graph.Instantiate()
		require.NoError(tb, err)
		ready.pass()
		require.NoError(tb, errors.Join(exec.Launch(st), exec.Launch(st), c.Wait(ctx, s), exec.Close(), graph.Close(), st.Close()))
	})
}

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
	"github.com/weftgo/weft/internal/turnstile"
)

// TestSanitized is what benchmarks/gpu/sanitize.sh runs under compute-sanitizer: every kernel, small, by a rank alone and by ranks
// that wait for each other, with deadlines that a program which runs a hundred times slower still meets. WEFT_SANITIZE_ROUNDS is
// how many random calls it makes, WEFT_SANITIZE_TIMEOUT the deadline.
func TestSanitized(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("WEFT_SANITIZE_ROUNDS"))
	if err != nil {
		rounds = 12
	}
	timeout, err := time.ParseDuration(os.Getenv("WEFT_SANITIZE_TIMEOUT"))
	if err != nil {
		timeout = time.Minute
	}
	for _, ranks := range []int{1, 3} {
		t.Run([]string{1: "alone", 3: "together"}[ranks], func(t *testing.T) {
			start := time.Now()
			everyKernel(t, openWorld(t, min(ranks, 2), timeout))
			t.Logf("RESULT every kernel, %d ranks: %v", min(ranks, 2), time.Since(start).Round(time.Millisecond))
			meet := turnstile.New(ranks)
			callersPointers(t, ranks, rounds, timeout, meet.Pass)
			t.Logf("RESULT and %d random calls of %d ranks: %v", rounds, ranks, time.Since(start).Round(time.Millisecond))
		})
	}
}

// ganged says that kernels which wait for each other are one launch, since tools run one kernel at a time.
var ganged = os.Getenv("WEFT_KERNEL_GANG") == "1"

// everyKernel uses what random calls on callers' memory leave out: small and large sums, counts on the device, messages, groups,
// and graphs. All memory is there before the first rank waits for another, because a tool may hold up what fills it.
func everyKernel(t *testing.T, w *comm.World) {
	meet := turnstile.New(w.Size())
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		s := comm.Stream{}
		types, cols := []dtype.DType{dtype.F32, dtype.BF16, dtype.F16, dtype.F8E4M3, dtype.I64}, []int{64, 4097}
		var pairs [][2]comm.Buffer
		for _, typ := range types {
			for _, n := range cols {
				pairs = append(pairs, [2]comm.Buffer{must(tb, c, typ, 4*c.Size(), n), must(tb, c, typ, 4*c.Size(), n)})
			}
		}
		x, y := must(tb, c, dtype.BF16, 16, 40), must(tb, c, dtype.BF16, 32, 40)
		own, all := must(tb, c, dtype.I32, 1, c.Size()), must(tb, c, dtype.I32, 1, c.Size())
		require.NoError(tb, comm.Copy(c, s, own, comm.Of([]int32{3, 1}[:c.Size()], c.Size())))
		alone, err := c.Split(ctx, c.Rank(), 0) // first uses, which a tool makes wait for running kernels, while none waits
		require.NoError(tb, err)
		meet.Pass()
		for _, g := range []*comm.Comm{alone, c} {
			for _, p := range pairs {
				a, b, n := p[0], p[1], p[0].Rows()/g.Size()
				require.NoError(tb, errors.Join(g.AllReduce(s, b.Slice(0, 1), a.Slice(0, 1), comm.Sum), g.AllReduce(s, b, a, comm.Sum),
					g.AllReduce(s, b, a, comm.Min), g.AllGather(s, b, a.Slice(0, n)), g.ReduceScatter(s, b.Slice(0, n), a, comm.Sum)))
				require.NoError(tb, g.Wait(ctx, s), "%v", a)
			}
			meet.Pass()
		}
		n := comm.OnDevice(own.Columns(0, 1), all, 16)
		part := comm.Part{Dst: y, Src: x}
		require.NoError(tb, errors.Join(c.AllGatherV(s, n, part), c.ReduceScatterV(s, n, comm.Sum, comm.Part{Dst: x, Src: y}),
			c.AllToAllV(s, comm.OnDevice(own, comm.Buffer{}, 16), comm.OnDevice(comm.Buffer{}, all, 16), part)))
		switch {
		case c.Size() == 1 || ganged:
		case c.Rank() == 0:
			require.NoError(tb, errors.Join(c.Send(s, x, 1), c.Recv(s, y.Slice(0, 16), 1)))
		default:
			require.NoError(tb, errors.Join(c.Recv(s, y.Slice(0, 16), 0), c.Send(s, x, 0)))
		}
		require.NoError(tb, c.Wait(ctx, s))
		sub, err := c.Split(ctx, 0, -c.Rank())
		require.NoError(tb, err)
		require.NoError(tb, errors.Join(sub.AllReduce(s, x, x, comm.Max), sub.Wait(ctx, s)))
		meet.Pass()
		require.NoError(tb, errors.Join(sub.Close(ctx), alone.Close(ctx)))
		if ganged {
			return // no graphs
		}

		st, err := device(tb).NewStream(0)
		require.NoError(tb, err)
		s.Handle = st.Handle()
		graph, err := st.Capture(func() error { return errors.Join(c.AllReduce(s, x, x, comm.Sum), c.Barrier(s)) })
		require.NoError(tb, err)
		exec, err := graph.Instantiate()
		require.NoError(tb, err)
		meet.Pass()
		require.NoError(tb, errors.Join(exec.Launch(st), exec.Launch(st), c.Wait(ctx, s), exec.Close(), graph.Close(), st.Close()))
	})
}

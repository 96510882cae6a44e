package twolevel_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/alltoall/twolevel"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/nodes"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/ep/eptest"
	"github.com/weftgo/weft/internal/gputest"
)

// ranksOn opens ranks that share a GPU.
func ranksOn(t testing.TB, gpu, ranks int, timeout time.Duration) *comm.World {
	list := make([]comm.Device, ranks)
	for i := range list {
		list[i] = comm.Device{Kind: comm.CUDA, Index: gpu}
	}
	w, err := p2p.Open(context.Background(), p2p.Config{Devices: list, Timeout: timeout, Blocks: 2, Workspace: 1 << 20})
	require.NoError(t, err)
	return w
}

// openGPU makes nodes whose ranks share GPU 0, with p2p inside and, in place of NCCL, between.
func openGPU(t testing.TB, numNodes, ranks int, timeout time.Duration) *comm.World {
	t.Helper()
	gputest.Device(t)
	return matrix(t, numNodes, ranks, func(int) *comm.World { return ranksOn(t, 0, ranks, timeout) },
		func() *comm.World { return ranksOn(t, 0, numNodes, timeout) })
}

// matrix makes a world of nodes from the worlds of each and of each column.
func matrix(t testing.TB, numNodes, ranks int, inside func(node int) *comm.World, column func() *comm.World) *comm.World {
	t.Helper()
	list := make([]nodes.Node, numNodes)
	for n := range list {
		list[n].Inside = inside(n)
	}
	for range ranks {
		for n, c := range column().Local() {
			list[n].Between = append(list[n].Between, c)
		}
	}
	w, err := nodes.Open(context.Background(), list...)
	require.NoError(t, err)
	return w
}

// shapeOf is [nodes, ranks of a node] for tests that want so many ranks.
func shapeOf(ranks int) (numNodes, inside int) {
	for _, n := range []int{2, 3} {
		if ranks%n == 0 && ranks > n {
			return ranks / (ranks / n), ranks / n
		}
	}
	return ranks, 1
}

// The suite passes on GPUs.
func TestConformanceGPU(t *testing.T) {
	gputest.Device(t)
	const numNodes, ranks = 2, 2
	eptest.TestWith(t, create, func(t testing.TB, _ int, timeout time.Duration) *comm.World {
		return openGPU(t, numNodes, ranks, timeout)
	},
		eptest.Traits{Nodes: numNodes, Ranks: numNodes * ranks,
			Bytes: func(cfg ep.Config) (int64, int64) { return twolevel.Bytes(cfg, numNodes, ranks) }})
}

// Every bit is the CPU's, in the two-level order too.
func TestTwinGPU(t *testing.T) {
	gputest.Device(t)
	eptest.TestTwinOf(t, create, func(t testing.TB, ranks int, timeout time.Duration) *comm.World {
		n, inside := shapeOf(ranks)
		return open(t, n, inside, timeout)
	}, func(t testing.TB, ranks int, timeout time.Duration) *comm.World {
		n, inside := shapeOf(ranks)
		return openGPU(t, n, inside, timeout)
	})
}

func TestRoundsGPU(t *testing.T) {
	gputest.Device(t)
	eptest.TestRounds(t, create, func(t testing.TB, _ int, timeout time.Duration) *comm.World { return openGPU(t, 2, 3, timeout) })
}

// A dispatch and a combine cannot be captured, and say why; the exchanger stays usable.
func TestCaptureRefused(t *testing.T) {
	dev := gputest.Device(t)
	w := openGPU(t, 2, 2, 20*time.Second)
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := create(ctx, c, ep.Config{NumExperts: 4, TopK: 1, Hidden: 4, MaxTokensPerRank: 2})
		if err != nil {
			return err
		}
		rows, err := comm.Alloc(c, dtype.F32, 2, 4)
		require.NoError(t, err)
		ids, err := comm.Alloc(c, dtype.I32, 2, 1)
		require.NoError(t, err)
		weights, err := comm.Alloc(c, dtype.F32, 2, 1)
		require.NoError(t, err)
		route := ep.Routing{IDs: ids, Weights: weights}
		st, err := dev.NewStream(0)
		require.NoError(t, err)
		var refused error
		g, err := st.Capture(func() error {
			_, refused = x.Dispatch(comm.Stream{Handle: st.Handle()}, rows, route)
			return nil
		})
		require.ErrorIs(t, refused, comm.Unavailable)
		require.ErrorContains(t, refused, "a graph cannot capture it")
		if err == nil {
			require.NoError(t, g.Close())
		}
		require.NoError(t, st.Close())
		r, err := x.Dispatch(comm.Stream{}, rows, route)
		if err != nil {
			return err
		}
		st, err = dev.NewStream(0)
		require.NoError(t, err)
		if g, err = st.Capture(func() error {
			refused = x.Combine(comm.Stream{Handle: st.Handle()}, rows, r.Y, r)
			return nil
		}); err == nil {
			require.NoError(t, g.Close())
		}
		require.ErrorContains(t, refused, "combine: between nodes the host waits for what came, so a graph cannot capture it")
		require.NoError(t, st.Close())
		if err := x.Combine(comm.Stream{}, rows, r.Y, r); err != nil {
			return err
		}
		return x.Close(ctx)
	}))
	require.NoError(t, w.Close(context.Background()))
}

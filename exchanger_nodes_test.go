package weft_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/alltoall/twolevel"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/comm/nodes"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/ep/eptest"
)

// openNodes makes a world of nodes x ranks, over worlds of comm/local for each node and each column.
func openNodes(t testing.TB, numNodes, ranks int, timeout time.Duration) *comm.World {
	t.Helper()
	list := make([]nodes.Node, numNodes)
	for n := range list {
		w, err := local.Open(local.Config{Ranks: ranks, Timeout: timeout})
		require.NoError(t, err)
		list[n].Inside = w
	}
	for range ranks {
		w, err := local.Open(local.Config{Ranks: numNodes, Timeout: timeout})
		require.NoError(t, err)
		for n := range list {
			list[n].Between = append(list[n].Between, w.Local()[n])
		}
	}
	w, err := nodes.Open(context.Background(), list...)
	require.NoError(t, err)
	return w
}

// The strategy of a name has two levels in a world of several nodes of several ranks, and one where a level is trivial.
func TestExchangerOfNodes(t *testing.T) {
	cfg := ep.Config{NumExperts: 64, TopK: 2, Hidden: 4, MaxTokensPerRank: 2}
	for shape, levels := range map[[2]int]int{{2, 2}: 2, {3, 2}: 2, {1, 4}: 1, {4, 1}: 1} {
		for _, name := range []string{"alltoall", "auto"} {
			w := openNodes(t, shape[0], shape[1], 0)
			require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
				x, err := weft.NewExchanger(ctx, c, name, cfg)
				if err != nil {
					return err
				}
				_, two := x.(*twolevel.Exchange)
				require.Equal(t, levels == 2, two, "%v %s: %T", shape, name, x)
				require.Equal(t, "alltoall", x.Name())
				return x.Close(ctx)
			}))
			require.NoError(t, w.Close(context.Background()))
		}
	}
}

// agrs passes its suite over a world of nodes too, whose all_gatherv and reduce_scatterv have two levels.
func TestAgrsOfNodes(t *testing.T) {
	for _, shape := range [][2]int{{2, 2}, {3, 2}} {
		if testing.Short() && shape[0] == 3 {
			continue
		}
		eptest.TestWith(t, func(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
			return weft.NewExchanger(ctx, c, "agrs", cfg)
		}, func(t testing.TB, _ int, timeout time.Duration) *comm.World {
			return openNodes(t, shape[0], shape[1], timeout)
		},
			eptest.Traits{Nodes: shape[0], Ranks: shape[0] * shape[1]})
	}
}

// Between nodes too, agrs, alltoall and an all-reduce of partial rows give the same bits, which are not those of one node.
func TestStrategiesAgreeBetweenNodes(t *testing.T) {
	for _, dt := range []dtype.DType{dtype.F32, dtype.BF16} {
		for numNodes, perRank := range map[int][]int{2: {5, 0, 3, 7}, 3: {2, 4, 0, 6, 1, 5}} {
			cfg := ep.Config{NumExperts: 11, TopK: 6, Hidden: 45, MaxTokensPerRank: 9, DType: dt}
			b := newBatch(cfg, perRank)
			one := b.exchange(t, "alltoall", 0)
			b.numNodes = numNodes
			agrs := b.exchange(t, "agrs", 0)
			require.Equal(t, agrs, b.exchange(t, "alltoall", 0), "%v %v", dt, perRank)
			require.Equal(t, agrs, b.merged(t), "%v %v", dt, perRank)
			require.NotEqual(t, one, agrs, "%v %v", dt, perRank)
		}
	}
}

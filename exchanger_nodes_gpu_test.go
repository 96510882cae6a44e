package weft_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/alltoall/twolevel"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/nodes"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/gputest"
)

// Between nodes of GPUs "auto" is alltoall, also where a token goes to all ranks and one node would gather: agrs says that it has no
// kernels there.
func TestExchangerOfNodesGPU(t *testing.T) {
	gputest.Device(t)
	const numNodes, ranks = 2, 2
	open := func() *comm.World {
		w, err := p2p.Open(context.Background(), p2p.Config{Devices: []comm.Device{{Kind: comm.CUDA}, {Kind: comm.CUDA}}, Timeout: time.Minute, Blocks: 2, Workspace: 1 << 20})
		require.NoError(t, err)
		return w
	}
	list := make([]nodes.Node, numNodes)
	for n := range list {
		list[n].Inside = open()
	}
	for range ranks {
		for n, c := range open().Local() {
			list[n].Between = append(list[n].Between, c)
		}
	}
	w, err := nodes.Open(context.Background(), list...)
	require.NoError(t, err)
	cfg := ep.Config{NumExperts: 4, TopK: 4, Hidden: 4, MaxTokensPerRank: 2}
	require.Equal(t, "agrs", weft.ChooseExchanger(comm.CUDA, numNodes*ranks, cfg))
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		_, err := weft.NewExchanger(ctx, c, "agrs", cfg)
		require.ErrorContains(t, err, "cannot launch the kernels of an exchange")
		x, err := weft.NewExchanger(ctx, c, "auto", cfg)
		if err != nil {
			return err
		}
		require.IsType(t, &twolevel.Exchange{}, x)
		return x.Close(ctx)
	}))
	require.NoError(t, w.Close(context.Background()))
}

package twolevel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/alltoall/twolevel"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/comm/nodes"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/ep/eptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes a world of nodes x ranks, over worlds of comm/local for each node and each column.
func open(t testing.TB, numNodes, ranks int, timeout time.Duration) *comm.World {
	t.Helper()
	columns := make([]*comm.World, ranks)
	for i := range columns {
		w, err := local.Open(local.Config{Ranks: numNodes, Timeout: timeout})
		require.NoError(t, err)
		columns[i] = w
	}
	list := make([]nodes.Node, numNodes)
	for n := range list {
		w, err := local.Open(local.Config{Ranks: ranks, Timeout: timeout})
		require.NoError(t, err)
		list[n].Inside = w
		for _, column := range columns {
			list[n].Between = append(list[n].Between, column.Local()[n])
		}
	}
	w, err := nodes.Open(context.Background(), list...)
	require.NoError(t, err)
	return w
}

func create(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
	inside, between, ok := nodes.Levels(c)
	if !ok {
		return nil, errors.New("no world of nodes")
	}
	x, err := twolevel.New(ctx, inside, between, cfg)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// The whole suite of exchangers passes between nodes.
func TestConformance(t *testing.T) {
	for _, shape := range [][2]int{{2, 2}, {2, 4}, {3, 2}, {2, 1}, {1, 3}} {
		if testing.Short() && shape != [2]int{2, 2} {
			continue
		}
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			eptest.TestWith(t, create, func(t testing.TB, _ int, timeout time.Duration) *comm.World {
				return open(t, shape[0], shape[1], timeout)
			},
				eptest.Traits{Nodes: shape[0], Ranks: shape[0] * shape[1],
					Bytes: func(cfg ep.Config) (int64, int64) { return twolevel.Bytes(cfg, shape[0], shape[1]) }})
		})
	}
}

// Rounds without an end, with ranks that come at random times.
func TestRounds(t *testing.T) {
	eptest.TestRounds(t, create, func(t testing.TB, _ int, timeout time.Duration) *comm.World { return open(t, 2, 3, timeout) })
}

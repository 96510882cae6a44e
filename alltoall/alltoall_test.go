package alltoall_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/ep/eptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func create(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
	x, err := alltoall.New(ctx, c, cfg)
	if err != nil {
		return nil, err
	}
	return x, nil
}

func openHost(t testing.TB, ranks int, timeout time.Duration) *comm.World {
	w, err := local.Open(local.Config{Ranks: ranks, Timeout: timeout})
	require.NoError(t, err)
	return w
}

func TestConformance(t *testing.T) { eptest.TestExchanger(t, create) }

func TestLowLatency(t *testing.T) { eptest.TestLowLatency(t, create, openHost) }

// Without LowLatency the halves are refused.
func TestHalvesNeedLowLatency(t *testing.T) {
	w, err := local.Open(local.Config{Ranks: 1})
	require.NoError(t, err)
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := alltoall.New(ctx, c, ep.Config{NumExperts: 1, TopK: 1, Hidden: 1, MaxTokensPerRank: 1})
		if err != nil {
			return err
		}
		_, sent := x.DispatchSend(comm.Stream{}, comm.Buffer{}, ep.Routing{})
		for _, err := range []error{sent, x.DispatchRecv(comm.Stream{}, nil), x.CombineSend(comm.Stream{}, comm.Buffer{}, nil), x.CombineRecv(comm.Stream{}, comm.Buffer{}, nil)} {
			require.ErrorIs(t, err, comm.Invalid)
			require.ErrorContains(t, err, "need Config.LowLatency")
		}
		return nil
	}))
	require.NoError(t, w.Close(context.Background()))
}

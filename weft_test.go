package weft

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/internal/gputest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOpen(t *testing.T) {
	for _, cfg := range []Config{{}, {Ranks: 1, Devices: "cpu"}, {Ranks: 3, Driver: "local", Timeout: time.Second}} {
		w, err := Open(t.Context(), cfg)
		require.NoError(t, err)
		require.Equal(t, max(1, cfg.Ranks), w.Size())
		commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			require.NoError(tb, c.Barrier(comm.Stream{}))
		})
		require.NoError(t, w.Close(t.Context()))
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, x := range []struct {
		cfg  Config
		code comm.Code
		text string
	}{
		{Config{Ranks: 7, Devices: "cuda:0x8"}, comm.Invalid, "they are for 8 ranks, not 7"},
		{Config{Devices: "cuda:"}, comm.Invalid, `"" is no GPU`},
		{Config{Devices: "cuda:3-1"}, comm.Invalid, `"3-1" is no GPU`},
		{Config{Devices: "cuda:0x0"}, comm.Invalid, `"0x0" is no GPU`},
		{Config{Devices: "cuda"}, comm.Invalid, `"" is no GPU; use "cuda:0", "cuda:0-7"`},
		{Config{Ranks: 8, Devices: "cuda:3"}, comm.Invalid, "they are for 1 ranks, not 8; 8 ranks on GPU 3 are cuda:3x8"},
		{Config{Devices: "cuda:0x8", Driver: "nvls"}, comm.Invalid, `driver "nvls": use "local" on the CPU; "p2p", "nccl", "staged"`},
		{Config{Devices: "cuda:0x8", Driver: "local"}, comm.Invalid, `driver "local" runs on the CPU, not on devices "cuda:0x8"`},
		{Config{Devices: "cuda:0", Driver: "staged:smoke"}, comm.Invalid, `driver "staged:smoke": use "local"`},
		{Config{Devices: "cuda:0", Driver: "p2p:staged"}, comm.Invalid, `driver "p2p:staged": use "local"`},
		{Config{Devices: "cpu", Driver: "staged"}, comm.Invalid, `driver "staged" runs on GPUs: name them in devices, such as "cuda:0-7"`},
		{Config{Driver: "nccl"}, comm.Invalid, `driver "nccl" runs on GPUs`},
		{Config{Driver: "NCCL"}, comm.Invalid, `driver "NCCL": use "local" on the CPU; "p2p", "nccl"`},
		{Config{Devices: "tpu"}, comm.Invalid, `devices "tpu": use "cpu", or GPUs`},
		{Config{Devices: "cpu:3"}, comm.Invalid, "the CPU is one device"},
		{Config{Driver: "smoke"}, comm.Invalid, `driver "smoke"`},
		{Config{Ranks: 65}, comm.Invalid, "65 ranks"},
		{Config{Timeout: -1}, comm.Invalid, "negative"},
	} {
		_, err := Open(t.Context(), x.cfg)
		require.ErrorIs(t, err, x.code, "%+v", x.cfg)
		require.ErrorContains(t, err, x.text)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("too late"))
	_, err := Open(ctx, Config{})
	require.ErrorIs(t, err, comm.Aborted)
	require.ErrorContains(t, err, "too late")
}

func TestGPUs(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0-3": {0, 1, 2, 3}, "0x3": {0, 0, 0}, "5,1": {5, 1}, "0-1x2,4": {0, 0, 1, 1, 4}} {
		got, err := gpus(list)
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for i, index := range want {
			require.Equal(t, comm.Device{Kind: comm.CUDA, Index: index}, got[i], list)
		}
	}
}

// TestOpenGPU opens ranks that share a GPU by name. Without one, the error says what was looked for.
func TestOpenGPU(t *testing.T) {
	w, err := Open(t.Context(), Config{Devices: "cuda:0x4"})
	if errors.Is(err, comm.Unavailable) {
		require.ErrorContains(t, err, "libcuda")
		gputest.Skip(t, "this test needs a GPU: "+err.Error())
	}
	require.NoError(t, err)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		require.Equal(tb, "cuda:0", c.Device().String())
		require.NoError(tb, c.Barrier(comm.Stream{}))
		require.NoError(tb, c.Wait(ctx, comm.Stream{}))
	})
	require.NoError(t, w.Close(t.Context()))
}

// TestOpenStaged keeps the ranks on the host.
func TestOpenStaged(t *testing.T) {
	for _, driver := range []string{"staged", "staged:p2p"} {
		w, err := Open(t.Context(), Config{Devices: "cuda:0x2", Driver: driver})
		if errors.Is(err, comm.Unavailable) {
			gputest.Skip(t, "this test needs a GPU: "+err.Error())
		}
		require.NoError(t, err)
		commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			require.Equal(tb, "cpu:0", c.Device().String())
			x := []float32{1}
			require.NoError(tb, c.AllReduce(comm.Stream{}, comm.Of(x, 1), comm.Of(x, 1), comm.Sum))
			require.Equal(tb, float32(2), x[0])
		})
		require.NoError(t, w.Close(t.Context()))
	}
}

// Four ranks add their vectors; each gets the sum.
func ExampleOpen() {
	ctx := context.Background()
	world, err := Open(ctx, Config{Ranks: 4})
	if err != nil {
		panic(err)
	}
	defer world.Close(ctx)
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		x := []float32{1, float32(c.Rank())}
		if err := c.AllReduce(comm.Stream{}, comm.Of(x, 2), comm.Of(x, 2), comm.Sum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(x)
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	// Output: [4 6]
}

//go:build linux && cgo

package ncclworld_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/nccl/nccltest"
	"github.com/weftgo/weft/nccl/ncclworld"
)

func openFake(t testing.TB, ranks int, timeout time.Duration, change func(*ncclworld.Config)) *comm.World {
	cfg := ncclworld.Config{Devices: gpus(ranks), Timeout: timeout}
	if change != nil {
		change(&cfg)
	}
	w, err := ncclworld.Open(t.Context(), cfg)
	require.NoError(t, err)
	return w
}

// The driver passes the suite over the stand-in, whose sums have comm/local's order.
func TestFakeDriver(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	commtest.TestDriver(t, func(t testing.TB, ranks int) *comm.World { return openFake(t, ranks, 0, nil) },
		commtest.Timeouts(func(t testing.TB, ranks int, timeout time.Duration) *comm.World {
			return openFake(t, ranks, timeout, nil)
		}),
		commtest.Sizes([]int{1, 2, 3, 8}, nil))
}

// Blocking communicators behave alike.
func TestFakeDriverBlocking(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite a second time; not in short runs")
	}
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	open := func(t testing.TB, ranks int, timeout time.Duration) *comm.World {
		return openFake(t, ranks, timeout, func(c *ncclworld.Config) { c.Options.Blocking = true })
	}
	commtest.TestDriver(t, func(t testing.TB, ranks int) *comm.World { return open(t, ranks, 0) }, commtest.Timeouts(open), commtest.Sizes([]int{4}, nil))
}

func TestFakeExample(t *testing.T) {
	inside, output := nccltest.Run(t, nil)
	if inside {
		Example()
		return
	}
	require.Contains(t, output, "[2 4 6]")
}

// An old library does what it can, and says what it cannot.
func TestFakeOld(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil, "-DVERSION=21801"); !inside {
		return
	}
	w := openFake(t, 2, 0, nil)
	err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		x := caseOf{kind: comm.AllReduce, typ: 4, counts: []int{2, 2}, cols: 3} // e4m3
		in, _ := x.input(c.Rank())
		_, err := x.run(ctx, c, in)
		require.ErrorIs(t, err, comm.Unavailable)
		require.ErrorContains(t, err, "NCCL has it since 2.24, this is 2.18.1")
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, w.Close(t.Context()))
}

// A library that cannot be used is the error of Open.
func TestFakeTooOld(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil, "-DVERSION=21403"); !inside {
		return
	}
	_, err := ncclworld.Open(t.Context(), ncclworld.Config{Devices: gpus(1)})
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "is version 2.14.3; weft needs 2.18.1 or newer")
}

// While ranks may wait for each other inside NCCL, memory of their devices that the program frees goes when the world has closed:
// the driver's own call would wait for their kernels. A world of one rank waits for nobody.
func TestFakeHold(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	for ranks, held := range map[int]bool{1: false, 3: true} {
		w := openFake(t, ranks, 0, nil)
		for i := range ranks {
			d, err := cuda.Open(i)
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			require.Equal(t, held, d.Held(), "device %d of %d", i, ranks)
			addr, err := d.Alloc(64)
			require.NoError(t, err)
			require.NoError(t, d.Free(addr))
			require.Equal(t, held, d.PutOff() == 1)
		}
		require.NoError(t, w.Close(t.Context()))
		for i := range ranks {
			d, err := cuda.Open(i)
			require.NoError(t, err)
			require.False(t, d.Held())
			require.Zero(t, d.PutOff())
			require.NoError(t, d.Close())
		}
	}
}

package p2p_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gputest"
)

// TestExample runs the example where there is a GPU.
func TestExample(t *testing.T) {
	gputest.Device(t)
	Example()
}

// Four ranks share GPU 0. Each adds up buffers that weft did not allocate, on a stream of the caller's: both are integers
// that any CUDA library of the process may have made.
func Example() {
	ctx := context.Background()
	gpu := comm.Device{Kind: comm.CUDA, Index: 0}
	world, err := p2p.Open(ctx, p2p.Config{Devices: []comm.Device{gpu, gpu, gpu, gpu}})
	if err != nil {
		fmt.Println("no GPU here:", err)
		return
	}
	defer world.Close(ctx)
	dev, err := cuda.Open(gpu.Index)
	if err != nil {
		panic(err)
	}
	defer dev.Close()
	const n = 1024
	memory, err := dev.Alloc(4 * n * world.Size()) // before ranks wait for each other
	if err != nil {
		panic(err)
	}
	defer dev.Free(memory)
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		stream, err := dev.NewStream(0)
		if err != nil {
			return err
		}
		defer stream.Close()
		address := memory + uintptr(4*n*c.Rank())
		if err := stream.Fill32(address, 0x3f800000, n); err != nil { // 1.0
			return err
		}
		s := comm.Stream{Handle: stream.Handle()}
		mine := comm.At(gpu, address, dtype.F32, 1, n, n)
		if err := c.AllReduce(s, mine, mine, comm.Sum); err != nil {
			return err
		}
		return c.Wait(ctx, s)
	})
	if err != nil {
		panic(err)
	}
}

// Command pointers adds up tensors that weft did not allocate, on streams that weft did not make:
//
//	go run ./examples/pointers -devices cuda:0x4
//
// Both are integers to weft: an address is a CUdeviceptr, a stream a CUstream, each of its device's primary context, which is
// the one that CUDA's runtime and all that builds on it use. So whatever library of the process owns a tensor, three numbers
// hand it over. Of PyTorch, in a process that has loaded weft as a C library (go build -buildmode=c-shared), they are
//
//	t.data_ptr()                              the address of the first element, whatever view t is
//	t.stride(0)                               elements from one row to the next; t.stride(1) must be 1
//	torch.cuda.current_stream().cuda_stream   the stream; not the default one where ranks share a GPU
//
// The owner keeps the tensor allocated until the stream has passed the operation (t.record_stream does that in PyTorch), and
// makes its stream wait for what fills the tensor, as for any kernel. On several GPUs it is memory of cudaMalloc, for which
// weft enables access by the other GPUs; memory of torch's expandable segments is mapped for one GPU only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

func main() {
	devices := flag.String("devices", "cuda:0x4", "GPUs, one for each rank, such as cuda:0-7, or cuda:0x4 for four ranks on GPU 0; the CPU will not do")
	flag.Parse()
	if err := run(os.Stdout, *devices); err != nil {
		fmt.Fprintln(os.Stderr, "pointers:", err)
		os.Exit(1)
	}
}

// A tensor is what its owner tells weft: rows x cols float32 numbers at an address, with a row stride in elements.
type tensor struct {
	address            uintptr
	rows, cols, stride int
}

// run lets every rank's owner make a tensor, adds them up, and looks at what the owners then have.
func run(out io.Writer, devices string) error {
	ctx := context.Background()
	if !strings.HasPrefix(devices, "cuda:") {
		return comm.Errorf("open", 0, comm.Invalid, "-devices %q: this example needs GPUs, such as cuda:0x4", devices)
	}
	world, err := weft.Open(ctx, weft.Config{Devices: devices})
	if err != nil {
		return err
	}
	owners := make([]*owner, world.Size())
	defer func() {
		for _, o := range owners {
			o.close()
		}
	}()
	for i, c := range world.Local() { // taking memory may wait for kernels, so before ranks wait for each other
		if owners[i], err = newOwner(c.Device().Index); err != nil {
			return errors.Join(err, world.Close(ctx))
		}
	}
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		o := owners[c.Rank()]
		t, err := o.make(c.Rank())
		if err != nil {
			return err
		}
		// From here on this is all that weft knows of the owner.
		x := comm.At(c.Device(), t.address, dtype.F32, t.rows, t.cols, t.stride)
		s := comm.Stream{Handle: o.stream.Handle()}
		if err := c.AllReduce(s, x, x, comm.Sum); err != nil {
			return err
		}
		if err := c.Wait(ctx, s); err != nil {
			return err
		}
		return o.check(t, c.Rank(), c.Size())
	})
	if err == nil {
		fmt.Fprintf(out, "%d ranks added up tensors of their owners, in place, on the owners' streams: all numbers are right, and what lies between the rows is untouched\n", world.Size())
	}
	return errors.Join(err, world.Close(ctx))
}

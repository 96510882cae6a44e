package nccl

import (
	"unsafe"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/nccl/internal/calls"
)

// RowCopy copies Rows rows of Width bytes on a device. A pitch is the bytes from the start of one row to that of the next.
type RowCopy struct{ Dst, DstPitch, Src, SrcPitch, Width, Rows uint64 }

// Batch is what one C call issues on a stream, in this order: copies, calls as one group, copies. A Batch that is used again
// allocates nothing.
type Batch struct {
	Before []RowCopy
	Calls  []Call
	After  []RowCopy
	job    job
}

// job is calls.h's wn_job.
type job struct {
	ctx, comm, stream                 uint64
	numBefore, numOps, numAfter, spin int32
	stage, _                          int32
}

// spinMicros is how long an enqueue stays in C for a non-blocking group that is about to be launched: the library does
// that on a thread of its own.
const spinMicros = 100

// Begin issues a batch on s. After InProgress, which non-blocking communicators answer while the library connects or its own
// thread launches, Advance goes on with it; nothing in the batch may change until one of them has answered otherwise. It does not look
// whether the library has the functions; see Enqueue.
func (c *Communicator) Begin(s *cuda.Stream, b *Batch) Result {
	b.job = job{stream: uint64(s.Handle()), numBefore: int32(len(b.Before)), numOps: int32(len(b.Calls)), numAfter: int32(len(b.After)), spin: spinMicros}
	return c.Advance(b)
}

// Advance goes on with what Begin, or an earlier Advance, answered InProgress for.
func (c *Communicator) Advance(b *Batch) Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone.Load() {
		return InvalidArgument
	}
	b.job.ctx, b.job.comm = uint64(c.dev.Context()), c.handle()
	return Result(calls.Enqueue(unsafe.Pointer(&b.job), unsafe.Pointer(unsafe.SliceData(b.Calls)), unsafe.Pointer(unsafe.SliceData(b.Before)),
		unsafe.Pointer(unsafe.SliceData(b.After)), c.msg))
}

// Failure makes an [Error] of a result of Begin, Advance or State, with the library's last message; nil of Success and InProgress.
func (c *Communicator) Failure(r Result, call string) error { return check(r, call, c.msg) }

// CopyRows enqueues a copy on a stream of dev.
func CopyRows(dev *cuda.Device, s *cuda.Stream, x RowCopy) error {
	if err := Init(); err != nil {
		return err
	}
	j := job{ctx: uint64(dev.Context()), stream: uint64(s.Handle())}
	if r := Result(calls.Copy(unsafe.Pointer(&j), unsafe.Pointer(&x))); r != Success {
		return r
	}
	return nil
}

package nccl

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/nccl/internal/calls"
)

// Type is an ncclDataType_t.
type Type int32

// The types that weft has no name for are here too.
const (
	Int8    Type = 0
	Uint8   Type = 1
	Int32   Type = 2
	Uint32  Type = 3
	Int64   Type = 4
	Uint64  Type = 5
	Float16 Type = 6
	Float32 Type = 7
	Float64 Type = 8
	BFloat  Type = 9
	F8E4M3  Type = 10 // 2.24
	F8E5M2  Type = 11 // 2.24
)

// TypeOf returns the library's number of an element type.
func TypeOf(t dtype.DType) Type {
	switch t {
	case dtype.BF16:
		return BFloat
	case dtype.F16:
		return Float16
	case dtype.F8E4M3:
		return F8E4M3
	case dtype.F8E5M2:
		return F8E5M2
	case dtype.I8:
		return Int8
	case dtype.U8:
		return Uint8
	case dtype.I32:
		return Int32
	case dtype.I64:
		return Int64
	}
	return Float32
}

// Reduction is an ncclRedOp_t: one of the library's, or one of PreMulSum.
type Reduction int32

// The library's reductions.
const (
	Sum  Reduction = 0
	Prod Reduction = 1
	Max  Reduction = 2
	Min  Reduction = 3
	Avg  Reduction = 4
)

// ReductionOf returns the library's number of a reduction.
func ReductionOf(r comm.ReduceOp) Reduction {
	return [...]Reduction{comm.Sum: Sum, comm.Prod: Prod, comm.Min: Min, comm.Max: Max, comm.Avg: Avg}[r]
}

// Kind is a function that a Call names.
type Kind int32

// The functions.
const (
	AllReduce Kind = iota
	AllGather
	ReduceScatter
	Broadcast
	Reduce
	Send
	Recv
	Bcast    // in place, of Dst
	AlltoAll // 2.28.3
	Gather   // 2.28.3
	Scatter  // 2.28.3
)

// Call is one operation on contiguous device memory. Count is the library's: elements that one rank gives (AllGather,
// AlltoAll per peer) or gets (ReduceScatter). Peer is the root, or the other rank of Send and Recv. An operation in place has
// Dst and Src where the library's documentation has them.
type Call struct {
	Src, Dst, Count uint64
	Kind            Kind
	Type            Type
	Reduce          Reduction
	Peer            int32
}

func init() {
	// The layouts of calls.h.
	if unsafe.Sizeof(Call{}) != 40 || unsafe.Sizeof(RowCopy{}) != 48 || unsafe.Sizeof(job{}) != 48 || unsafe.Sizeof(layout{}) != configBytes {
		panic("nccl: a struct differs from calls.h")
	}
}

// Enqueue issues a list of calls as one group on s. It returns when they are launched; in a non-blocking communicator ctx ends that
// wait, after which the communicator must be aborted.
func (c *Communicator) Enqueue(ctx context.Context, s *cuda.Stream, list ...Call) error {
	for i := range list {
		if k := list[i].Kind; k >= AlltoAll {
			if err := needs(calls.AlltoAll + int(k-AlltoAll)); err != nil {
				return err
			}
		}
	}
	b := &Batch{Calls: list}
	for r := c.Begin(s, b); r != Success; r = c.Advance(b) {
		if r != InProgress {
			return c.Failure(r, fmt.Sprintf("a group of %d calls", len(list)))
		}
		if err := c.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Simulate returns the microseconds that the library expects of a group. Nothing is launched.
func (c *Communicator) Simulate(s *cuda.Stream, list ...Call) (float32, error) {
	if err := needs(calls.Simulate); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone.Load() {
		return 0, &Error{Call: "GroupSimulateEnd", Result: InvalidArgument}
	}
	var micros float32
	j := &job{ctx: uint64(c.dev.Context()), comm: c.handle(), stream: uint64(s.Handle()), numOps: int32(len(list))}
	err := check(Result(calls.Estimate(unsafe.Pointer(j), unsafe.Pointer(unsafe.SliceData(list)), &micros, c.msg)), "GroupSimulateEnd", c.msg)
	return micros, err
}

// PreMulSum makes a reduction that multiplies each rank's input by its own scalar before it adds, for operations of c on
// type t. The scalar is one element of t in the host's byte order, at most 8 bytes.
func (c *Communicator) PreMulSum(t Type, scalar []byte) (Reduction, error) {
	a := [6]uint64{3: uint64(t), 4: 1, 5: c.handle()}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&a[2])), 8), scalar)
	err := c.call(calls.RedOpCreate, "RedOpCreatePreMulSum", a[:])
	return Reduction(int32(a[0])), err
}

// PreMulSumAt is PreMulSum with the scalar in device memory, read while the operation runs.
func (c *Communicator) PreMulSumAt(t Type, scalar uintptr) (Reduction, error) {
	a := [6]uint64{1: uint64(scalar), 3: uint64(t), 4: 0, 5: c.handle()}
	err := c.call(calls.RedOpCreate, "RedOpCreatePreMulSum", a[:])
	return Reduction(int32(a[0])), err
}

// DropReduction frees what PreMulSum made, once the last call that uses it has returned.
func (c *Communicator) DropReduction(r Reduction) error {
	a := [2]uint64{uint64(r), c.handle()}
	return c.call(calls.RedOpDestroy, "RedOpDestroy", a[:])
}

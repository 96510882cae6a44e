package kernels

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/nvrtc"
)

// barrierThreads returns a thread for each line of the heads of size entries, in whole warps.
func barrierThreads(size int) uint32 { return uint32((4*size + 31) / 32 * 32) }

// Set is the kernels, loaded on one device.
type Set struct {
	exchange                                                                     *ExchangeSet
	module                                                                       *cuda.Module
	barrier, barriers, copy, reduce, reduceAny, send, recv, leave, memory, small *cuda.Function
}

// Load compiles the kernels for the device, or takes them from the cache, and loads all of them, so that none is loaded while
// ranks wait for each other. The caller calls Close.
func Load(dev *cuda.Device) (*Set, error) {
	image, err := nvrtc.Cubin(Program(dev.Info().Arch()))
	if err != nil {
		return nil, err
	}
	m, err := dev.LoadModule(image)
	if err != nil {
		return nil, err
	}
	s := &Set{module: m}
	if err := s.functions(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if s.exchange, err = LoadExchange(dev); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return s, nil
}

// Exchange returns the kernels of dispatch and combine.
func (s *Set) Exchange() *ExchangeSet { return s.exchange }

func (s *Set) functions() error {
	for _, f := range []struct {
		name   string
		fn     **cuda.Function
		params uintptr
	}{
		{"weft_barrier", &s.barrier, unsafe.Sizeof(Args{})},
		{"weft_barriers", &s.barriers, unsafe.Sizeof(Args{})},
		{"weft_copy", &s.copy, unsafe.Sizeof(Args{})},
		{"weft_reduce", &s.reduce, unsafe.Sizeof(Args{})},
		{"weft_reduce_any", &s.reduceAny, unsafe.Sizeof(Args{})},
		{"weft_send", &s.send, unsafe.Sizeof(Args{})},
		{"weft_recv", &s.recv, unsafe.Sizeof(Args{})},
		{"weft_leave", &s.leave, unsafe.Sizeof(Args{})},
		{"weft_small", &s.small, unsafe.Sizeof(Args{})},
		{"weft_memory", &s.memory, unsafe.Sizeof(MemoryArgs{})},
	} {
		fn, err := s.module.Function(f.name)
		if err != nil {
			return err
		}
		if n, err := fn.ParamBytes(); err == nil && n != int(f.params) { // older drivers cannot tell
			return fmt.Errorf("kernels: %s takes %d bytes of parameters, weft packs %d", f.name, n, f.params)
		}
		*f.fn = fn
	}
	return nil
}

// Close unloads the kernels. None may be running.
func (s *Set) Close() error { return errors.Join(s.exchange.Close(), s.module.Close()) }

// Collective launches the kernel of a.Kind for a group of size ranks on blocks blocks. Barrier, Send and Split take one.
func (s *Set) Collective(st *cuda.Stream, a *Args, size, blocks int) error {
	fn := s.copy
	switch comm.OpKind(a.Kind) {
	case comm.Barrier, Split:
		fn, blocks = s.barrier, 1
	case comm.Send:
		fn, blocks = s.send, 1
	case comm.Recv:
		fn = s.recv
	case comm.AllReduce, comm.ReduceScatter, comm.ReduceScatterV, comm.Reduce:
		fn = s.reduceAny
		if common(a) {
			fn = s.reduce
		}
	}
	l := cuda.Linear(blocks, Threads)
	if blocks == 1 && fn == s.barrier {
		l.Block[0] = barrierThreads(size)
	}
	return cuda.Run(st, fn, &l, a)
}

// IsSmall reports whether Small can do the all-reduce. Ranks need not agree.
func IsSmall(a *Args) bool {
	p := &a.Entry.Parts[0]
	if a.Entry.NumParts != 1 || comm.OpKind(a.Kind) != comm.AllReduce || comm.ReduceOp(a.Reduce) != comm.Sum || !common(a) {
		return false
	}
	row := int64(p.Cols) * int64(dtype.DType(p.DTyp).Size())
	bytes := row * int64(p.SrcRows)
	dense := p.SrcRows <= 1 || p.SrcStride == row && p.DstStride == row
	return dense && bytes > 0 && bytes <= SmallBytes && (uint64(bytes)|p.Src|p.Dst)%8 == 0
}

// smallThreads is the least threads of a block of Small: many small blocks write faster than few large ones.
const smallThreads = 128

// Small launches the kernel for small all-reduces on up to maxBlocks blocks, which does it times times.
func (s *Set) Small(st *cuda.Stream, a *Args, maxBlocks, times int) error {
	p := &a.Entry.Parts[0]
	a.Peer = uint32(times)
	lines := int(p.Cols) * int(p.SrcRows) * dtype.DType(p.DTyp).Size() / 8
	blocks := min(maxBlocks, (lines+smallThreads-1)/smallThreads)
	threads := min(Threads, max(smallThreads, (lines/blocks+31)/32*32))
	l := cuda.Linear(blocks, threads)
	return cuda.Run(st, s.small, &l, a)
}

// common reports whether the kernel for sums of the common types will do.
func common(a *Args) bool {
	if op := comm.ReduceOp(a.Reduce); op != comm.Sum && op != comm.Avg {
		return false
	}
	for i := range a.Entry.NumParts {
		switch dtype.DType(a.Entry.Parts[i].DTyp) {
		case dtype.F32, dtype.BF16, dtype.F16:
		default:
			return false
		}
	}
	return true
}

// Barriers launches a kernel that meets n times.
func (s *Set) Barriers(st *cuda.Stream, a *Args, size, n int) error {
	if n < 1 {
		return fmt.Errorf("kernels: %d barriers", n)
	}
	a.Kind, a.Peer = uint32(comm.Barrier), uint32(n)
	l := cuda.Linear(1, int(barrierThreads(size)))
	return cuda.Run(st, s.barriers, &l, a)
}

// Leave tells all peers that the rank of a.Ctl takes part in nothing more.
func (s *Set) Leave(st *cuda.Stream, a *Args) error {
	l := cuda.Linear(1, MaxRanks)
	return cuda.Run(st, s.leave, &l, a)
}

// Memory copies rows in one address space, pinned host memory included.
func (s *Set) Memory(st *cuda.Stream, a *MemoryArgs, maxBlocks int) error {
	if a.Rows == 0 || a.RowBytes == 0 {
		return nil
	}
	const perBlock = Threads * 16 * 4
	blocks := int(min(uint64(maxBlocks), (a.Rows*a.RowBytes+perBlock-1)/perBlock))
	l := cuda.Linear(max(1, blocks), Threads)
	return cuda.Run(st, s.memory, &l, a)
}

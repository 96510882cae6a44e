package kernels

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sync/errgroup"

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
	gang                                                                         *gang
	module                                                                       *cuda.Module
	bulk                                                                         bool   // the GPU has bulk copies
	flow                                                                         int64  // the least bytes of a call that is cut into chunks
	overlap                                                                      uint32 // 1: it prepares a kernel while the one in front runs
	barrier, barriers, copy, reduce, reduceAny, send, recv, leave, memory, small *cuda.Function
}

// Load compiles the kernels for the device, or takes them from the cache, and loads all of them, so that none is loaded while
// ranks wait for each other. The caller calls Close.
func Load(dev *cuda.Device) (*Set, error) {
	arch := dev.Info().Arch()
	var image, exchange []byte
	var both errgroup.Group // a first use compiles for some 20 seconds, on a core each
	both.Go(func() (err error) { image, err = nvrtc.Cubin(Program(arch)); return err })
	both.Go(func() (err error) { exchange, err = nvrtc.Cubin(ExchangeProgram(arch)); return err })
	if err := both.Wait(); err != nil {
		return nil, err
	}
	m, err := dev.LoadModule(image)
	if err != nil {
		return nil, err
	}
	s := &Set{module: m, flow: flowBytes}
	if err := s.load(dev, exchange); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// load takes all that a Set has beside its module. After an error the caller calls Close.
func (s *Set) load(dev *cuda.Device, exchange []byte) (err error) {
	if s.gang, err = newGang(dev); err != nil {
		return err
	}
	if delayed() {
		s.flow = flowBytesDelay
	}
	if err := s.functions(); err != nil {
		return err
	}
	if err := s.allowBulk(dev); err != nil {
		return err
	}
	s.exchange, err = loadExchange(dev, exchange, s.gang)
	return err
}

// Group tells the size of a Ctl's group.
func (s *Set) Group(ctl uint64, size int) { s.gang.group(ctl, size) }

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
		if n, err := fn.ParamBytes(); err == nil && n != int(f.params) && s.gang == nil { // older drivers cannot tell
			return fmt.Errorf("kernels: %s takes %d bytes of parameters, weft packs %d", f.name, n, f.params)
		}
		*f.fn = fn
	}
	if s.gang != nil {
		s.gang.short[s.small] = true
	}
	return nil
}

// Launches with bulk copies: a warp that loads beside the warps that add up, and the shared memory that bulk.cuh names.
const (
	bulkThreads = 256 + 32
	bulkShared  = 128<<10 + 4*8<<10 // BULK_SHARED

	// FLOW_BYTES, without and with delays.
	flowBytes      = 4 << 20
	flowBytesDelay = 64 << 10
)

// allowBulk lets the kernels have the shared memory of bulk copies, which compute capability 9.0 brought.
func (s *Set) allowBulk(dev *cuda.Device) error {
	if dev.Info().Major < 9 {
		return nil
	}
	s.overlap = 1
	for _, f := range []*cuda.Function{s.copy, s.reduce} {
		if static, err := f.Attribute(cuda.FuncStaticShared); err != nil || static+bulkShared > dev.Info().SharedBytes {
			return err
		}
		if err := f.SetMaxShared(bulkShared); err != nil {
			return err
		}
	}
	s.bulk = true
	return nil
}

// bulkFits reports whether this rank brings what bulk copies need: a large call whose buffers have no gaps and are aligned. Ranks
// need not agree.
func (s *Set) bulkFits(a *Args, size int) bool {
	bytes := int64(0)
	for i := range a.Entry.NumParts {
		p := &a.Entry.Parts[i]
		row := int64(p.Cols) * int64(dtype.DType(p.DTyp).Size())
		if p.SrcRows > 1 && p.SrcStride != row || p.DstRows > 1 && p.DstStride != row || (p.Src|p.Dst)%16 != 0 {
			return false
		}
		bytes += row * int64(max(p.SrcRows, p.DstRows))
	}
	if comm.OpKind(a.Kind) == comm.AllToAllV {
		bytes *= int64(size)
	}
	return bytes >= s.flow
}

// Close unloads the kernels. None may be running. It also takes a Set of which Load has only a part.
func (s *Set) Close() error { return errors.Join(s.exchange.Close(), s.module.Close(), s.gang.close()) }

// linear is the shape of a launch that begins where the one in front ends: every kernel here calls follow() first.
func (s *Set) linear(blocks, threads int) cuda.Launch {
	l := cuda.Linear(blocks, threads)
	l.Overlap = s.overlap
	return l
}

// Collective launches the kernel of a.Kind for a group of size ranks on blocks blocks. Barrier, Send and Split take one.
func (s *Set) Collective(st *cuda.Stream, a *Args, size, blocks int) error {
	fn, meet := s.copy, a
	switch comm.OpKind(a.Kind) {
	case comm.Barrier, Split:
		fn, blocks = s.barrier, 1
	case comm.Send:
		fn, blocks, meet = s.send, 1, nil
	case comm.Recv:
		fn, meet = s.recv, nil
	case comm.AllReduce, comm.ReduceScatter, comm.ReduceScatterV, comm.Reduce:
		fn = s.reduceAny
		if common(a) {
			fn = s.reduce
		}
	}
	l := s.linear(blocks, Threads)
	switch {
	case fn == s.barrier:
		l.Block[0] = barrierThreads(size)
	case fn == s.reduceAny:
		l.Block[0] = Threads / 2
	case s.bulk && (fn == s.copy || fn == s.reduce) && s.bulkFits(a, size):
		l.Block[0], l.Shared = bulkThreads, bulkShared
	}
	return enqueue(s.gang, st, fn, &l, a, meet)
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
	l := s.linear(blocks, threads)
	return enqueue(s.gang, st, s.small, &l, a, a)
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
	l := s.linear(1, int(barrierThreads(size)))
	return enqueue(s.gang, st, s.barriers, &l, a, a)
}

// Leave tells all peers that the rank of a.Ctl takes part in nothing more.
func (s *Set) Leave(st *cuda.Stream, a *Args) error {
	l := s.linear(1, MaxRanks)
	return enqueue(s.gang, st, s.leave, &l, a, nil)
}

// Memory copies rows in one address space, pinned host memory included.
func (s *Set) Memory(st *cuda.Stream, a *MemoryArgs, maxBlocks int) error {
	if a.Rows == 0 || a.RowBytes == 0 {
		return nil
	}
	const perBlock = Threads * 16 * 4
	blocks := int(min(uint64(maxBlocks), (a.Rows*a.RowBytes+perBlock-1)/perBlock))
	l := s.linear(max(1, blocks), Threads)
	return enqueue(s.gang, st, s.memory, &l, a, nil)
}

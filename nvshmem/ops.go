package nvshmem

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
)

// SignalOp is how a signal changes its word.
type SignalOp int

// The operations on a signal.
const (
	SignalSet SignalOp = 9
	SignalAdd SignalOp = 10
)

// Compare is how a wait compares a signal.
type Compare int

// The comparisons.
const (
	Equal Compare = iota
	NotEqual
	Greater
	LessEqual
	Less
	GreaterEqual
)

// Team is a set of PEs; only those that the library makes itself are here.
type Team int

// The library's own teams.
const (
	World  Team = 0
	Shared Team = 1 // PEs that reach each other's memory
	Node   Team = 2
)

// call runs one call that waits for no other PE.
func (p *PE) call(what string, number int, args ...uint64) error {
	var a [8]uint64
	copy(a[:], args)
	if err := p.enter(context.Background(), what); err != nil {
		return err
	}
	defer p.leave()
	return codeError(what, run(p.dev.Context(), number, &a))
}

func codeError(what string, code int) error {
	if code != 0 {
		return errorf(comm.Internal, "%s: code %d", what, code)
	}
	return nil
}

// needs refuses what would end the process here, and what the library lacks.
func (p *PE) needs(what, symbol string) error {
	if p.limited {
		return errorf(comm.Unavailable, "%s: PEs share a GPU without MPS, where NVSHMEM %v would end the process; use one GPU for each PE, or MPS", what, loaded.version)
	}
	if !has(symbol) {
		return errorf(comm.Unavailable, "%s: NVSHMEM %v has no %s", what, loaded.version, symbol)
	}
	return nil
}

func (p *PE) pe(what string, pe int) error {
	if pe < 0 || pe >= p.cfg.Size {
		return errorf(comm.Invalid, "%s: PE %d of %d", what, pe, p.cfg.Size)
	}
	return nil
}

// Malloc returns bytes of symmetric memory: the same bytes on all PEs, which all call it. It waits for them.
func (p *PE) Malloc(ctx context.Context, bytes int) (uintptr, error) {
	if bytes <= 0 {
		return 0, errorf(comm.Invalid, "malloc of %d bytes", bytes)
	}
	var addr uintptr
	if err := p.wait(ctx, "malloc", func() { addr = malloc(p.dev.Context(), bytes) }); err != nil {
		return 0, err
	}
	if addr == 0 {
		return 0, errorf(comm.Unavailable, "malloc of %d bytes: the symmetric heap has no room; raise Config.HeapBytes or NVSHMEM_SYMMETRIC_SIZE", bytes)
	}
	return addr, nil
}

// Free gives memory of Malloc back; all PEs call it, and it waits for them.
func (p *PE) Free(ctx context.Context, addr uintptr) error {
	return p.wait(ctx, "free", func() { run(p.dev.Context(), callFree, &[8]uint64{uint64(addr)}) })
}

// Ptr returns where this process sees symmetric memory of another PE, given its address here; 0 when loads and stores do not
// reach it.
func (p *PE) Ptr(addr uintptr, pe int) (uintptr, error) {
	if err := p.pe("ptr", pe); err != nil {
		return 0, err
	}
	if err := p.enter(context.Background(), "ptr"); err != nil {
		return 0, err
	}
	defer p.leave()
	return ptr(p.dev.Context(), addr, pe), nil
}

// Put enqueues a copy of bytes from src, memory of this PE's GPU, to dst, symmetric memory of pe by its address here.
func (p *PE) Put(s *cuda.Stream, dst, src uintptr, bytes, pe int) error {
	if err := p.pe("put", pe); err != nil {
		return err
	}
	return p.call("put", callPut, uint64(dst), uint64(src), uint64(bytes), uint64(pe), uint64(s.Handle()))
}

// Get enqueues a copy of bytes from src, symmetric memory of pe by its address here, to dst.
func (p *PE) Get(s *cuda.Stream, dst, src uintptr, bytes, pe int) error {
	if err := p.pe("get", pe); err != nil {
		return err
	}
	return p.call("get", callGet, uint64(dst), uint64(src), uint64(bytes), uint64(pe), uint64(s.Handle()))
}

// PutSignal is Put, after which the 8-byte word at signal, symmetric memory, changes on pe.
func (p *PE) PutSignal(s *cuda.Stream, dst, src uintptr, bytes int, signal uintptr, value uint64, op SignalOp, pe int) error {
	if err := p.signal("put_signal", op, pe); err != nil {
		return err
	}
	return p.call("put_signal", callPutSignal, uint64(dst), uint64(src), uint64(bytes), uint64(signal), value, uint64(op), uint64(pe), uint64(s.Handle()))
}

// Signal enqueues a change of the word at signal on pe.
func (p *PE) Signal(s *cuda.Stream, signal uintptr, value uint64, op SignalOp, pe int) error {
	if err := p.signal("signal_op", op, pe); err != nil {
		return err
	}
	return p.call("signal_op", callSignal, uint64(signal), value, uint64(op), uint64(pe), uint64(s.Handle()))
}

func (p *PE) signal(what string, op SignalOp, pe int) error {
	if op != SignalSet && op != SignalAdd {
		return errorf(comm.Invalid, "%s: operation %d", what, op)
	}
	return p.pe(what, pe)
}

// SignalWait enqueues a wait for this PE's word at signal. Refused where PEs share a GPU without MPS: PE.Limited.
func (p *PE) SignalWait(s *cuda.Stream, signal uintptr, compare Compare, value uint64) error {
	if err := p.needs("signal_wait_until", "nvshmemx_signal_wait_until_on_stream"); err != nil {
		return err
	}
	if compare < Equal || compare > GreaterEqual {
		return errorf(comm.Invalid, "signal_wait_until: comparison %d", compare)
	}
	return p.call("signal_wait_until", callSignalWait, uint64(signal), uint64(compare), value, uint64(s.Handle()))
}

// BarrierAll waits until all PEs have come and all their operations on the host are complete.
func (p *PE) BarrierAll(ctx context.Context) error {
	return p.wait(ctx, "barrier_all", func() { run(p.dev.Context(), callBarrierAll, &[8]uint64{}) })
}

// SyncAll waits until all PEs have come; it completes nothing.
func (p *PE) SyncAll(ctx context.Context) error {
	return p.wait(ctx, "sync_all", func() { run(p.dev.Context(), callSyncAll, &[8]uint64{}) })
}

// BarrierAllOnStream enqueues a barrier of all PEs. Where they share a GPU without MPS the call itself waits for them.
func (p *PE) BarrierAllOnStream(ctx context.Context, s *cuda.Stream) error {
	return p.wait(ctx, "barrier_all_on_stream", func() { run(p.dev.Context(), callBarrierAllOnStream, &[8]uint64{uint64(s.Handle())}) })
}

// SyncAllOnStream enqueues a meeting of all PEs, as BarrierAllOnStream does.
func (p *PE) SyncAllOnStream(ctx context.Context, s *cuda.Stream) error {
	return p.wait(ctx, "sync_all_on_stream", func() { run(p.dev.Context(), callSyncAllOnStream, &[8]uint64{uint64(s.Handle())}) })
}

// Quiet enqueues the completion of this PE's operations on the stream.
func (p *PE) Quiet(s *cuda.Stream) error {
	return p.call("quiet", callQuietOnStream, uint64(s.Handle()))
}

// team runs a call of a team, which ends the process where PEs share a GPU without MPS.
func (p *PE) team(ctx context.Context, what, symbol string, number int, args ...uint64) error {
	if err := p.needs(what, symbol); err != nil {
		return err
	}
	var a [8]uint64
	copy(a[:], args)
	code := 0
	if err := p.wait(ctx, what, func() { code = run(p.dev.Context(), number, &a) }); err != nil {
		return err
	}
	return codeError(what, code)
}

// TeamSync enqueues a meeting of a team. Like all calls of teams it is refused where PEs share a GPU without MPS: PE.Limited.
func (p *PE) TeamSync(ctx context.Context, s *cuda.Stream, t Team) error {
	return p.team(ctx, "team_sync", "nvshmemx_team_sync_on_stream", callTeamSync, uint64(t), uint64(s.Handle()))
}

// TeamBarrier enqueues a barrier of a team.
func (p *PE) TeamBarrier(ctx context.Context, s *cuda.Stream, t Team) error {
	return p.team(ctx, "barrier", "nvshmemx_barrier_on_stream", callTeamBarrier, uint64(t), uint64(s.Handle()))
}

// AllToAll enqueues NVSHMEM's own: bytes from each PE to each.
func (p *PE) AllToAll(ctx context.Context, s *cuda.Stream, t Team, dst, src uintptr, bytes int) error {
	return p.team(ctx, "alltoall", "nvshmemx_alltoallmem_on_stream", callAllToAll, uint64(t), uint64(dst), uint64(src), uint64(bytes), uint64(s.Handle()))
}

// FCollect enqueues NVSHMEM's all-gather of bytes from each PE.
func (p *PE) FCollect(ctx context.Context, s *cuda.Stream, t Team, dst, src uintptr, bytes int) error {
	return p.team(ctx, "fcollect", "nvshmemx_fcollectmem_on_stream", callFCollect, uint64(t), uint64(dst), uint64(src), uint64(bytes), uint64(s.Handle()))
}

// Broadcast enqueues NVSHMEM's broadcast of bytes from the team's PE root.
func (p *PE) Broadcast(ctx context.Context, s *cuda.Stream, t Team, dst, src uintptr, bytes, root int) error {
	return p.team(ctx, "broadcast", "nvshmemx_broadcastmem_on_stream", callBroadcast, uint64(t), uint64(dst), uint64(src), uint64(bytes), uint64(root), uint64(s.Handle()))
}

// Sum enqueues NVSHMEM's all-reduce of n elements, in an order of its own; bf16 instead of fp32 when half.
func (p *PE) Sum(ctx context.Context, s *cuda.Stream, t Team, dst, src uintptr, n int, half bool) error {
	number, symbol := callSumF32, "nvshmemx_float_sum_reduce_on_stream"
	if half {
		number, symbol = callSumBF16, "nvshmemx_bfloat16_sum_reduce_on_stream"
	}
	return p.team(ctx, "sum_reduce", symbol, number, uint64(t), uint64(dst), uint64(src), uint64(n), uint64(s.Handle()))
}

// String names the PE.
func (p *PE) String() string {
	return fmt.Sprintf("PE %d of %d, NVSHMEM %v, limited %v", p.cfg.Rank, p.cfg.Size, loaded.version, p.limited)
}

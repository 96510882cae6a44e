package nccl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/nccl/internal/calls"
)

// Communicator is an ncclComm_t: one rank's end. One goroutine uses it at a time, on any thread; Abort may come from any,
// and waits for a call that is in the library. It is used until Destroy or Abort has returned.
type Communicator struct {
	dev      *cuda.Device
	blocking bool
	slot     uintptr        // C memory where the library writes the handle
	known    atomic.Uintptr // the handle, once it was there
	msg      *[calls.TextBytes]byte

	mu   sync.Mutex // of the calls, so that Abort does not pull the handle away under one
	gone atomic.Bool
	late []*Communicator // derived, but ctx ended before the handle came; guarded by mu
}

func newCommunicator(dev *cuda.Device, blocking bool) *Communicator {
	return &Communicator{dev: dev, blocking: blocking, slot: calls.NewSlot(), msg: new([calls.TextBytes]byte)}
}

// Handle returns the ncclComm_t, 0 once it is gone.
func (c *Communicator) Handle() uintptr {
	if h := c.known.Load(); h != 0 || c.slot == 0 {
		return h
	}
	h := calls.Load(c.slot)
	c.known.Store(h)
	return h
}

// CUDADevice returns the device it was made for.
func (c *Communicator) CUDADevice() *cuda.Device { return c.dev }

// UniqueID makes an ID. The process that calls it serves the ranks that come together, so it must live until they have.
func UniqueID() (ID, error) {
	if err := needs(calls.GetUniqueID); err != nil {
		return ID{}, err
	}
	a := make([]uint64, idWords)
	var msg [calls.TextBytes]byte
	err := check(run(0, calls.GetUniqueID, a, &msg), "GetUniqueId", &msg)
	return idOf(a), err
}

// NewCommunicator makes the communicator of one rank, and waits until all size ranks have come or ctx ends, which aborts it. The ranks
// of one process call it from a goroutine each, or use NewGroup.
func NewCommunicator(ctx context.Context, dev *cuda.Device, size, rank int, id ID, o Options) (*Communicator, error) {
	list, err := NewGroup(ctx, []*cuda.Device{dev}, size, []int{rank}, id, o)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// NewGroup makes the communicators of several ranks of this process, ranks[i] on devices[i], in one group.
func NewGroup(ctx context.Context, devices []*cuda.Device, size int, ranks []int, id ID, o Options) ([]*Communicator, error) {
	if err := needs(calls.InitRankConfig); err != nil {
		return nil, err
	}
	cfg := o.layout()
	list := make([]*Communicator, len(devices))
	ctxs, outs, numbers := make([]uint64, len(devices)), make([]uint64, len(devices)), make([]int32, len(devices))
	for i, d := range devices {
		list[i] = newCommunicator(d, o.Blocking)
		ctxs[i], outs[i], numbers[i] = uint64(d.Context()), uint64(list[i].slot), int32(ranks[i])
	}
	var msg [calls.TextBytes]byte
	r := Result(calls.Init(ctxs, outs, numbers, size, unsafe.Pointer(&id), unsafe.Pointer(&cfg), &msg))
	err := check(r, fmt.Sprintf("CommInitRankConfig of ranks %v of %d", ranks, size), &msg)
	for _, c := range list {
		if err == nil {
			err = c.Ready(ctx)
		}
	}
	return finish(list, err)
}

// finish returns the communicators, or aborts them all when one failed.
func finish(list []*Communicator, err error) ([]*Communicator, error) {
	if err == nil {
		return list, nil
	}
	for _, c := range list {
		err = errors.Join(err, c.Abort())
	}
	return nil, err
}

// NewScalable is NewGroup for one rank with several IDs, which share the work of bringing many ranks together: all ranks give the
// same IDs in the same order.
func NewScalable(ctx context.Context, dev *cuda.Device, size, rank int, ids []ID, o Options) (*Communicator, error) {
	if err := needs(calls.InitRankScalable); err != nil {
		return nil, err
	}
	c := newCommunicator(dev, o.Blocking)
	cfg := o.layout()
	a := append([]uint64{uint64(c.slot), uint64(size), uint64(rank), uint64(len(ids))}, cfg.words()...)
	for i := range ids {
		a = append(a, ids[i].words()...)
	}
	err := check(run(dev.Context(), calls.InitRankScalable, a, c.msg), fmt.Sprintf("CommInitRankScalable of rank %d of %d", rank, size), c.msg)
	if err == nil {
		err = c.Ready(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Abort())
	}
	return c, nil
}

// NewBlocking makes a communicator with the library's defaults (ncclCommInitRank): it returns when all ranks have come, and
// nothing can end that wait.
func NewBlocking(dev *cuda.Device, size, rank int, id ID) (*Communicator, error) {
	if err := needs(calls.InitRank); err != nil {
		return nil, err
	}
	c := newCommunicator(dev, true)
	a := append([]uint64{uint64(c.slot), uint64(size), uint64(rank)}, id.words()...)
	if err := check(run(dev.Context(), calls.InitRank, a, c.msg), fmt.Sprintf("CommInitRank of rank %d of %d", rank, size), c.msg); err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

// NewAll makes the communicators of one process that is the whole world, rank i on devices[i] (ncclCommInitAll).
func NewAll(devices []*cuda.Device) ([]*Communicator, error) {
	if err := needs(calls.InitAll); err != nil {
		return nil, err
	}
	n := len(devices)
	a := make([]uint64, 1+n+(n+1)/2)
	a[0] = uint64(n)
	numbers := unsafe.Slice((*int32)(unsafe.Pointer(&a[1+n:][0])), n)
	for i, d := range devices {
		numbers[i] = int32(d.Ordinal())
	}
	var msg [calls.TextBytes]byte
	if err := check(run(devices[0].Context(), calls.InitAll, a, &msg), fmt.Sprintf("CommInitAll of %d devices", n), &msg); err != nil {
		return nil, err
	}
	list := make([]*Communicator, n)
	for i, d := range devices {
		list[i] = newCommunicator(d, true)
		calls.Store(list[i].slot, uintptr(a[1+i]))
	}
	return list, nil
}

// State is what AsyncError answers: Success, InProgress, or why the communicator failed.
func (c *Communicator) State() Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.Handle()
	if c.gone.Load() || h == 0 {
		return InvalidArgument
	}
	a := [2]uint64{uint64(h)}
	if r := run(c.dev.Context(), calls.AsyncError, a[:], c.msg); r != Success {
		return r
	}
	return Result(int32(a[1]))
}

// AsyncError returns what failed since the last call: in a kernel, in a proxy thread, in a call that had not finished. Nil while
// all is well or in progress. A communicator that failed can only be aborted.
func (c *Communicator) AsyncError() error { return check(c.State(), "an operation", c.msg) }

// Ready waits until the communicator is not at work on an earlier call. When ctx ends first the communicator must be
// aborted; the error is ctx's cause.
func (c *Communicator) Ready(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		r := c.State()
		return r != InProgress, check(r, "an operation", c.msg)
	})
}

// poll looks until done, or until ctx ends: at once first, then less and less often.
func poll(ctx context.Context, look func() (done bool, err error)) error {
	start := time.Now()
	for pause := 5 * time.Microsecond; ; {
		if done, err := look(); done {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("nccl: waited %v for the library: %w", time.Since(start).Round(time.Millisecond), context.Cause(ctx))
		}
		if time.Since(start) < 50*time.Microsecond {
			runtime.Gosched()
			continue
		}
		time.Sleep(pause)
		pause = min(2*pause, time.Millisecond)
	}
}

// call runs a row whose first word is the handle.
func (c *Communicator) call(call int, name string, a []uint64) error {
	if err := needs(call); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return check(c.callLocked(call, a), name, c.msg)
}

func (c *Communicator) callLocked(call int, a []uint64) Result {
	if c.gone.Load() {
		return InvalidArgument
	}
	return run(c.dev.Context(), call, a, c.msg)
}

func (c *Communicator) handle() uint64 { return uint64(c.Handle()) }

// number asks for one integer.
func (c *Communicator) number(call int, name string) (int, error) {
	a := [2]uint64{c.handle()}
	err := c.call(call, name, a[:])
	return int(int32(a[1])), err
}

// Size returns the number of ranks.
func (c *Communicator) Size() (int, error) { return c.number(calls.Count, "CommCount") }

// Rank returns this rank.
func (c *Communicator) Rank() (int, error) { return c.number(calls.UserRank, "CommUserRank") }

// Ordinal returns the library's idea of the device.
func (c *Communicator) Ordinal() (int, error) { return c.number(calls.CuDevice, "CommCuDevice") }

// free gives the C memory back.
func (c *Communicator) free() {
	if c.slot != 0 {
		calls.FreeSlot(c.slot)
	}
	c.slot = 0
	c.gone.Store(true)
	c.known.Store(0)
}

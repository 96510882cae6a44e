package nccl

import (
	"context"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/nccl/internal/calls"
)

// MemAlloc returns device memory that the library can register everywhere: of allocation handles that peers import, and
// accessible to all GPUs with peer access. The caller calls MemFree.
func MemAlloc(dev *cuda.Device, bytes int) (uintptr, error) {
	if err := needs(calls.MemAlloc); err != nil {
		return 0, err
	}
	a := [2]uint64{0, uint64(bytes)}
	var msg [calls.TextBytes]byte
	err := check(run(dev.Context(), calls.MemAlloc, a[:], &msg), "MemAlloc", &msg)
	return uintptr(a[0]), err
}

// MemFree gives memory of MemAlloc back.
func MemFree(dev *cuda.Device, addr uintptr) error {
	if err := needs(calls.MemFree); err != nil {
		return err
	}
	a := [1]uint64{uint64(addr)}
	var msg [calls.TextBytes]byte
	return check(run(dev.Context(), calls.MemFree, a[:], &msg), "MemFree", &msg)
}

// Registration is a buffer that the library may use where it lies.
type Registration struct {
	c      *Communicator
	handle uint64
}

// Register makes bytes at addr known to the library; of use for memory of MemAlloc. It is local to the rank.
func (c *Communicator) Register(addr uintptr, bytes int) (Registration, error) {
	a := [4]uint64{c.handle(), uint64(addr), uint64(bytes)}
	err := c.call(calls.Register, "CommRegister", a[:])
	return Registration{c, a[3]}, err
}

// Close undoes Register.
func (r Registration) Close() error {
	a := [2]uint64{r.c.handle(), r.handle}
	return r.c.call(calls.Deregister, "CommDeregister", a[:])
}

// Window is memory that all ranks have registered together. It is opaque; kernels of a process with NCCL's headers may use
// its handle.
type Window struct {
	c    *Communicator
	slot uintptr
}

// Flags of RegisterWindow.
const (
	WindowDefault        = 0
	WindowSymmetric      = 1 // every rank uses the same offsets
	WindowStrictOrdering = 2 // 2.29.7
)

// RegisterWindow is collective: bytes at addr, aligned to 4096, of memory of MemAlloc, on every rank. Where the communicator
// has no symmetric memory, the window's Handle is 0 (2.29) or good for the host only (2.28).
func (c *Communicator) RegisterWindow(ctx context.Context, addr uintptr, bytes, flags int) (*Window, error) {
	if err := needs(calls.WindowRegister); err != nil {
		return nil, err
	}
	w := &Window{c: c, slot: calls.NewSlot()}
	a := [5]uint64{c.handle(), uint64(addr), uint64(bytes), uint64(w.slot), uint64(flags)}
	err := c.call(calls.WindowRegister, "CommWindowRegister", a[:])
	accepted := err == nil
	if accepted {
		err = c.Ready(ctx)
	}
	if err != nil {
		if !accepted || ctx.Err() == nil && !c.gone.Load() { // else the library may still write there: a few bytes stay
			calls.FreeSlot(w.slot)
		}
		return nil, err
	}
	return w, nil
}

// Handle returns the ncclWindow_t, 0 after Close.
func (w *Window) Handle() uintptr {
	if w.slot == 0 {
		return 0
	}
	return calls.Load(w.slot)
}

// closed is the error of a window that Close has ended: the library would follow its null handle.
func (w *Window) closed(name string) error {
	if w.slot == 0 {
		return &Error{Call: name + " of a closed window", Result: InvalidArgument}
	}
	return nil
}

// Close is collective and undoes RegisterWindow.
func (w *Window) Close(ctx context.Context) error {
	if w.slot == 0 {
		return nil
	}
	a := [2]uint64{w.c.handle(), uint64(w.Handle())}
	var err error
	if a[1] != 0 {
		if err = w.c.call(calls.WindowDeregister, "CommWindowDeregister", a[:]); err == nil {
			err = w.c.Ready(ctx)
		}
	}
	calls.FreeSlot(w.slot)
	w.slot = 0
	return err
}

// Addr returns the address that was registered here.
func (w *Window) Addr() (uintptr, error) {
	if err := w.closed("WinGetUserPtr"); err != nil {
		return 0, err
	}
	a := [3]uint64{w.c.handle(), uint64(w.Handle())}
	err := w.c.call(calls.WinGetUserPtr, "WinGetUserPtr", a[:])
	return uintptr(a[2]), err
}

func (w *Window) pointer(call int, name string, offset, rank int) (uintptr, error) {
	if err := w.closed(name); err != nil {
		return 0, err
	}
	a := [4]uint64{uint64(w.Handle()), uint64(offset), uint64(rank)}
	err := w.c.call(call, name, a[:])
	return uintptr(a[3]), err
}

// PeerPointer returns where the memory of a rank of the communicator is for this one's kernels, 0 where they cannot reach it.
func (w *Window) PeerPointer(offset, rank int) (uintptr, error) {
	return w.pointer(calls.PeerPointer, "GetPeerDevicePointer", offset, rank)
}

// LSAPointer is PeerPointer by the rank within the team of ranks that load and store each other's memory.
func (w *Window) LSAPointer(offset, rank int) (uintptr, error) {
	return w.pointer(calls.LsaPointer, "GetLsaDevicePointer", offset, rank)
}

// MultimemPointer returns the multicast address of that team. weft itself makes no use of it.
func (w *Window) MultimemPointer(offset int) (uintptr, error) {
	if err := w.closed("GetLsaMultimemDevicePointer"); err != nil {
		return 0, err
	}
	a := [3]uint64{uint64(w.Handle()), uint64(offset)}
	err := w.c.call(calls.LsaMultimemPointer, "GetLsaMultimemDevicePointer", a[:])
	return uintptr(a[2]), err
}

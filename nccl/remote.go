package nccl

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/nccl/internal/calls"
)

// PutSignal enqueues a write of count elements at src into a peer's window, then a signal that the peer's WaitSignal counts.
func (c *Communicator) PutSignal(ctx context.Context, s *cuda.Stream, src uintptr, count int, t Type, peer int, w *Window, offset, signal int) error {
	if err := w.closed("PutSignal"); err != nil {
		return err
	}
	a := [11]uint64{uint64(src), uint64(count), uint64(t), uint64(peer), uint64(w.Handle()), uint64(offset), uint64(signal), 0, 0,
		c.handle(), uint64(s.Handle())}
	if err := c.call(calls.PutSignal, fmt.Sprintf("PutSignal to %d", peer), a[:]); err != nil {
		return err
	}
	return c.Ready(ctx)
}

// Signal enqueues a signal without data.
func (c *Communicator) Signal(ctx context.Context, s *cuda.Stream, peer, signal int) error {
	a := [6]uint64{uint64(peer), uint64(signal), 0, 0, c.handle(), uint64(s.Handle())}
	if err := c.call(calls.Signal, fmt.Sprintf("Signal to %d", peer), a[:]); err != nil {
		return err
	}
	return c.Ready(ctx)
}

// Expected is signals of one peer that WaitSignal waits for.
type Expected struct{ NumOps, Peer, Signal, Context int32 }

// WaitSignal makes later work of s wait for signals.
func (c *Communicator) WaitSignal(ctx context.Context, s *cuda.Stream, list ...Expected) error {
	a := make([]uint64, 3+2*len(list))
	a[0], a[1], a[2] = uint64(len(list)), c.handle(), uint64(s.Handle())
	if len(list) > 0 {
		copy(unsafe.Slice((*Expected)(unsafe.Pointer(&a[3])), len(list)), list)
	}
	if err := c.call(calls.WaitSignal, fmt.Sprintf("WaitSignal of %d", len(list)), a); err != nil {
		return err
	}
	return c.Ready(ctx)
}

// Params returns the names of the library's documented parameters.
func Params() ([]string, error) {
	if err := needs(calls.ParamKeys); err != nil {
		return nil, err
	}
	keys, r := calls.ParamNames()
	if Result(r) != Success {
		return nil, &Error{Call: "ParamGetAllParameterKeys", Result: Result(r)}
	}
	return keys, nil
}

// Param returns the value of one of them as text.
func Param(key string) (string, error) {
	if err := needs(calls.ParamGetParameter); err != nil {
		return "", err
	}
	name := calls.CString(key)
	defer calls.FreeSlot(name)
	a := [3]uint64{uint64(name)}
	var msg [calls.TextBytes]byte
	// The text is the thread's: it is read before the goroutine can move.
	value, r := calls.Param(a[:], &msg)
	return value, check(Result(r), "ParamGetParameter of "+key, &msg)
}

package nccl

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/weftgo/weft/nccl/internal/calls"
)

// derive makes a communicator from c with a row that writes a handle to the new one's slot, and waits for it. The new one
// is nil when the library gave none. When ctx ends first, the library may still write the handle: the slot stays.
func (c *Communicator) derive(ctx context.Context, call int, name string, o *Options, words func(slot uintptr, cfg []uint64) []uint64) (*Communicator, error) {
	if err := needs(call); err != nil {
		return nil, err
	}
	n := newCommunicator(c.dev, c.blocking)
	cfg := make([]uint64, configWords) // size 0: the parent's
	if o != nil {
		l := o.layout()
		n.blocking = o.Blocking
		copy(cfg, l.words())
	}
	err := c.call(call, name, words(n.slot, cfg))
	accepted := err == nil
	if accepted {
		err = c.Ready(ctx)
	}
	if err == nil && n.Handle() != 0 {
		err = n.Ready(ctx)
	}
	if err != nil && accepted && (ctx.Err() != nil || c.gone.Load()) && n.Handle() == 0 {
		c.mu.Lock()
		c.late = append(c.late, n)
		c.mu.Unlock()
		return nil, err
	}
	if err != nil {
		return nil, errors.Join(err, n.Abort())
	}
	if n.Handle() == 0 {
		n.free()
		return nil, nil
	}
	return n, nil
}

// Split is collective: ranks of one color form a new communicator, ordered by key, then by rank. A negative color joins none
// and gets nil. o nil means the parent's options.
func (c *Communicator) Split(ctx context.Context, color, key int, o *Options) (*Communicator, error) {
	color = max(color, -1)
	return c.derive(ctx, calls.Split, fmt.Sprintf("CommSplit color %d key %d", color, key), o, func(slot uintptr, cfg []uint64) []uint64 {
		return append([]uint64{c.handle(), uint64(color), uint64(key), uint64(slot)}, cfg...)
	})
}

// Shrink is called by the ranks that stay: it makes a communicator without the excluded ones. With abort it first ends what
// is under way on c, after a failure; without, c must be idle and well.
func (c *Communicator) Shrink(ctx context.Context, excluded []int, abort bool, o *Options) (*Communicator, error) {
	return c.derive(ctx, calls.Shrink, fmt.Sprintf("CommShrink without %v", excluded), o, func(slot uintptr, cfg []uint64) []uint64 {
		flags := uint64(0)
		if abort {
			flags = 1
		}
		a := append([]uint64{c.handle(), uint64(len(excluded)), uint64(slot), flags}, cfg...)
		return append(a, packed(excluded)...)
	})
}

// packed puts 32-bit integers two to a word.
func packed(list []int) []uint64 {
	w := make([]uint64, (len(list)+1)/2+1)
	n := unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(w))), 2*len(w))
	for i, x := range list {
		n[i] = int32(x)
	}
	return w
}

// UniqueID makes the ID with which new ranks Join through c; one member calls it, and gives it to Grow. It is for one use.
func (c *Communicator) UniqueID() (ID, error) {
	a := append([]uint64{c.handle()}, make([]uint64, idWords)...)
	err := c.call(calls.CommGetUniqueID, "CommGetUniqueId", a)
	return idOf(a[1:]), err
}

// growWords are the words of ncclCommGrow.
func growWords(comm uint64, size, rank int, slot uintptr, id *ID, cfg []uint64) []uint64 {
	a := append([]uint64{comm, uint64(size), uint64(rank), uint64(slot), 0}, cfg...)
	if id == nil {
		return a
	}
	a[4] = 1
	return append(a, id.words()...)
}

// Grow is called by all ranks of c, which keep their numbers in a new communicator of size ranks; the others Join. The member
// that made the ID gives it, the rest give nil.
func (c *Communicator) Grow(ctx context.Context, size int, id *ID, o *Options) (*Communicator, error) {
	return c.derive(ctx, calls.Grow, fmt.Sprintf("CommGrow to %d ranks", size), o, func(slot uintptr, cfg []uint64) []uint64 {
		return growWords(c.handle(), size, -1, slot, id, cfg)
	})
}

// Finalize is collective: it flushes what was issued and waits for it, as far as ctx lets. Destroy follows.
func (c *Communicator) Finalize(ctx context.Context) error {
	a := [1]uint64{c.handle()}
	if err := c.call(calls.Finalize, "CommFinalize", a[:]); err != nil {
		return err
	}
	return c.Ready(ctx)
}

// Finish is Finalize and Destroy, as far as ctx lets. A blocking communicator's Finalize waits inside the library for the other ranks, so it runs
// aside; when ctx ends first, the abort that follows ends it.
func (c *Communicator) Finish(ctx context.Context) error {
	end := func() error {
		err := c.Finalize(ctx)
		if err == nil {
			err = c.Destroy()
		}
		return err
	}
	if !c.blocking {
		return end()
	}
	ended := make(chan error, 1)
	go func() { ended <- end() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	_ = c.Abort()
	select {
	case <-ended:
	case <-time.After(stuck): // it never left the library; nothing can be done about its thread
	}
	return context.Cause(ctx)
}

// Destroy frees the communicator. A second call does nothing.
func (c *Communicator) Destroy() error { return c.end(calls.Destroy, "CommDestroy") }

// Abort ends what is under way, also a kernel that waits for a peer, and frees the communicator. A second call does nothing.
func (c *Communicator) Abort() error { return c.end(calls.Abort, "CommAbort") }

func (c *Communicator) end(call int, name string) error {
	var msg [calls.TextBytes]byte // c.msg is the caller's of a call under way
	var err error
	if !c.acquire(call == calls.Abort) { // the call under way leaves when the communicator is aborted under it
		a := [1]uint64{c.handle()}
		if c.gone.Swap(true) { // whoever comes after that call finds it gone
			return nil
		}
		err = check(run(c.dev.Context(), call, a[:], &msg), name, &msg)
		c.mu.Lock()
		c.free()
		c.mu.Unlock()
		return err
	}
	defer c.mu.Unlock()
	if c.gone.Load() {
		return nil
	}
	for _, n := range c.late {
		if n.Handle() != 0 { // else its slot, a few bytes, is never freed
			_ = n.Abort()
		}
	}
	c.late = nil
	if h := c.Handle(); h != 0 {
		a := [1]uint64{uint64(h)}
		err = check(run(c.dev.Context(), call, a[:], &msg), name, &msg)
	}
	c.free()
	return err
}

// stuck is how long Abort waits for a call of a blocking communicator to leave the library by itself.
const stuck = time.Second

// acquire locks the calls. An abort of a blocking communicator does not wait for good: a call may be waiting for a peer.
func (c *Communicator) acquire(abort bool) bool {
	if !abort || !c.blocking {
		c.mu.Lock()
		return true
	}
	for begin := time.Now(); time.Since(begin) < stuck; time.Sleep(time.Millisecond) {
		if c.mu.TryLock() {
			return true
		}
	}
	return c.mu.TryLock()
}

// Revoke stops what is under way and leaves a communicator that can only be split, shrunk, destroyed or aborted. It waits
// until that is so, as far as ctx lets.
func (c *Communicator) Revoke(ctx context.Context) error {
	a := [2]uint64{c.handle()}
	if err := c.call(calls.Revoke, "CommRevoke", a[:]); err != nil {
		return err
	}
	return c.Ready(ctx)
}

// Suspend gives back the device memory that the communicator can do without; Resume takes it again. Between them it cannot
// be used.
func (c *Communicator) Suspend() error {
	a := [2]uint64{c.handle(), 1}
	return c.call(calls.Suspend, "CommSuspend", a[:])
}

// Resume undoes Suspend.
func (c *Communicator) Resume() error {
	a := [1]uint64{c.handle()}
	return c.call(calls.Resume, "CommResume", a[:])
}

// MemStat is what MemStats can tell.
type MemStat int

// The statistics.
const (
	MemCanSuspend MemStat = iota // bytes that Suspend would give back
	MemSuspended                 // 1 while suspended
	MemPersistent                // bytes that stay
	MemTotal                     // all bytes that the library tracks
)

// MemStats returns one statistic of the communicator's device memory.
func (c *Communicator) MemStats(s MemStat) (uint64, error) {
	a := [3]uint64{c.handle(), uint64(s)}
	err := c.call(calls.MemStats, "CommMemStats", a[:])
	return a[2], err
}

package staged

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
)

// heap is the memory of a device that no machine has: Go memory that is found by its address alone. A driver that is handed
// memory of the host does not find it.
type heap struct {
	mu     sync.Mutex
	blocks map[uintptr][]byte
	limit  int // bytes in all; 0 for no limit
	used   int
	most   int
}

func (h *heap) alloc(bytes int) (uintptr, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.used += bytes; h.limit > 0 && h.used > h.limit {
		h.used -= bytes
		return 0, fmt.Errorf("%d bytes on a device that has %d: %w", bytes, h.limit, comm.Unavailable)
	}
	h.most = max(h.most, h.used)
	words := make([]int64, bytes/8+1)
	at := uintptr(unsafe.Pointer(unsafe.SliceData(words)))
	h.blocks[at] = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), bytes)
	return at, nil
}

func (h *heap) free(addr uintptr) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, ok := h.blocks[addr]
	if !ok {
		return fmt.Errorf("free of %#x", addr)
	}
	for i := range b {
		b[i] = 0x5a // whoever still reads it gets this
	}
	h.used -= len(b)
	delete(h.blocks, addr)
	return nil
}

// view is a device buffer as the CPU driver takes it.
func (h *heap) view(b comm.Buffer) (comm.Buffer, error) {
	if b.IsZero() || b.Device().Kind == comm.CPU {
		return b, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for at, block := range h.blocks {
		if b.Addr() >= at && b.Addr()+uintptr(b.SizeBytes()) <= at+uintptr(len(block)) && b.Contiguous() {
			return comm.OfBytes(block[b.Addr()-at:], b.DType(), b.Rows(), b.Cols()), nil
		}
	}
	return comm.Buffer{}, fmt.Errorf("%v at %#x is not in memory of the device", b, b.Addr())
}

// device is a driver whose memory is not the host's, over the CPU driver. Like a GPU's it reports errors of an operation at the
// next copy or wait.
type device struct {
	comm.Conn
	heap  *heap
	rank  int
	late  error
	op    comm.Op
	parts []comm.Part
	ops   *int // what one rank was given
}

func (d *device) Device() comm.Device { return comm.Device{Kind: comm.CUDA, Index: 3} }

func (d *device) Do(s comm.Stream, op *comm.Op) error {
	if err := d.pending(); err != nil {
		return err
	}
	*d.ops++
	d.op, d.parts = *op, append(d.parts[:0], op.Parts...)
	var err error
	for i := range d.parts {
		for _, b := range []*comm.Buffer{&d.parts[i].Dst, &d.parts[i].Src} {
			if *b, err = d.heap.view(*b); err != nil {
				return err
			}
		}
	}
	d.op.Parts = d.parts
	for _, n := range []*comm.Counts{&d.op.Send, &d.op.Recv} {
		if _, isHost := n.Host(); isHost || n.IsZero() {
			continue
		}
		own, all, most := n.Device()
		if own, err = d.heap.view(own); err != nil {
			return err
		}
		if all, err = d.heap.view(all); err != nil {
			return err
		}
		*n = comm.OnDevice(own, all, most)
	}
	d.late = d.Conn.Do(s, &d.op)
	op.Stats = d.op.Stats
	if _, isHost := op.Send.Host(); !isHost && !op.Send.IsZero() {
		op.Stats.SentBytes = 0 // only the device knows
	}
	return nil
}

func (d *device) pending() (err error) {
	err, d.late = d.late, nil
	return err
}

func (d *device) Wait(context.Context, comm.Stream) error { return d.pending() }

func (d *device) Split(ctx context.Context, color, key int) (comm.Conn, int, int, error) {
	in, rank, size, err := d.Conn.Split(ctx, color, key)
	if err != nil || in == nil {
		return nil, 0, 0, err
	}
	return &device{Conn: in, heap: d.heap, rank: d.rank, ops: d.ops}, rank, size, nil
}

func (d *device) Alloc(t dtype.DType, rows, cols int) (comm.Buffer, error) {
	addr, err := d.heap.alloc(rows * cols * t.Size())
	if err != nil {
		return comm.Buffer{}, &comm.Error{Op: "alloc", Rank: d.rank, Peer: comm.NoPeer, Code: comm.Unavailable, Err: err}
	}
	return comm.At(d.Device(), addr, t, rows, cols, cols), nil
}

func (d *device) Free(b comm.Buffer) error {
	if b.IsZero() {
		return nil
	}
	return d.heap.free(b.Addr())
}

func (d *device) Copy(_ comm.Stream, dst, src comm.Buffer) error {
	if err := d.pending(); err != nil {
		return err
	}
	from, err := d.heap.view(src)
	if err != nil {
		return err
	}
	to, err := d.heap.view(dst)
	if err != nil {
		return err
	}
	for i := range to.Rows() {
		copy(to.RowBytes(i), from.RowBytes(i))
	}
	return nil
}

// Without opens the world of what is left over the same heap. What missing ranks had is given back, as with a GPU that others
// use too.
func (d *device) Without(ctx context.Context, missing, stuck []int) (*comm.World, error) {
	below, err := d.Conn.(comm.Reformer).Without(ctx, missing, stuck)
	if err != nil {
		return nil, err
	}
	d.heap.mu.Lock()
	clear(d.heap.blocks)
	d.heap.used = 0
	d.heap.mu.Unlock()
	return over(below, d.heap, make([]int, below.Size())), nil
}

// over puts devices over the ranks of a world.
func over(below *comm.World, h *heap, ops []int) *comm.World {
	var comms []*comm.Comm
	for i, c := range below.Local() {
		comms = append(comms, comm.New(&device{Conn: c.Conn(), heap: h, rank: i, ops: &ops[i]}, i, below.Size()))
	}
	return comm.NewWorld(comms)
}

// rig is a staged world over a device that no machine has.
type rig struct {
	below *comm.World
	*comm.World
	heap *heap
	ops  []int // of each rank
}

func newRig(t testing.TB, ranks int, timeout time.Duration, cfg Config) *rig {
	below, err := local.Open(local.Config{Ranks: ranks, Timeout: timeout})
	require.NoError(t, err)
	r := &rig{heap: &heap{blocks: map[uintptr][]byte{}}, ops: make([]int, ranks)}
	r.below = over(below, r.heap, r.ops)
	r.World, err = Open(r.below, cfg)
	require.NoError(t, err)
	return r
}

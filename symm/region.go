package symm

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// Provider allocates symmetric memory. A driver's Conn that can is one.
type Provider interface {
	// AllocSymmetric is collective: bytes of zeroed memory for every rank of the group.
	AllocSymmetric(ctx context.Context, bytes int) (Mapping, error)
}

// Mapping is what a Provider allocated, as one rank sees it.
type Mapping struct {
	Base    []uintptr                   // where this rank sees the memory of each rank
	Host    []byte                      // this rank's memory, where it is the host's
	Release func(context.Context) error // collective; gives the memory back. Nothing may use it any more
}

// Region is memory of equal size on every rank of a group. Any goroutine may call At; one calls Close.
type Region struct {
	comm  *comm.Comm
	m     Mapping
	bytes int
	peers [][]byte // host memory of every rank, which the garbage collector must see
}

// Align is the alignment of a Region's first byte on every rank.
const Align = 16

// Alloc is collective: it returns a Region of bytes zeroed bytes on every rank of c, which all give the same number.
func Alloc(ctx context.Context, c *comm.Comm, bytes int) (*Region, error) {
	if bytes <= 0 {
		return nil, comm.Errorf("symm.alloc", c.WorldRank(), comm.Invalid, "%d bytes", bytes)
	}
	if p, ok := c.Conn().(Provider); ok {
		m, err := p.AllocSymmetric(ctx, bytes)
		if err != nil {
			return nil, err
		}
		return &Region{comm: c, m: m, bytes: bytes}, nil
	}
	if c.Device().Kind != comm.CPU {
		return nil, comm.Errorf("symm.alloc", c.WorldRank(), comm.Unavailable, "driver %T provides no symmetric memory of %v", c.Conn(), c.Device())
	}
	return allocHost(c, bytes)
}

// Bytes returns the size on each rank.
func (r *Region) Bytes() int { return r.bytes }

// Addr returns where this rank sees the first byte of a rank's memory.
func (r *Region) Addr(rank int) uintptr { return r.m.Base[rank] }

// At views [rows, cols] elements of a rank's memory, offset bytes from its beginning. Like slicing, it panics when they are
// not inside the Region or not aligned to their size.
func (r *Region) At(rank, offset int, t dtype.DType, rows, cols int) comm.Buffer {
	if rank < 0 || rank >= len(r.m.Base) || offset < 0 || rows < 0 || cols <= 0 || offset%t.Size() != 0 ||
		rows > (r.bytes-offset)/t.Size()/cols {
		panic(fmt.Sprintf("symm: %v[%d, %d] at byte %d of rank %d; the region has %d bytes on %d ranks",
			t, rows, cols, offset, rank, r.bytes, len(r.m.Base)))
	}
	if r.peers == nil {
		return comm.At(r.comm.Device(), r.m.Base[rank]+uintptr(offset), t, rows, cols, cols)
	}
	return comm.OfBytes(r.peers[rank][offset:], t, rows, cols)
}

// Close is collective and gives the memory back. No operation may still use it.
func (r *Region) Close(ctx context.Context) error {
	if r.m.Release == nil {
		return nil
	}
	release := r.m.Release
	r.m.Release = nil
	return release(ctx)
}

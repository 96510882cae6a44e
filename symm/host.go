package symm

import (
	"context"
	"sync"
	"unsafe"

	"github.com/weftgo/weft/comm"
)

// shared holds the memory of a Region between the rank that makes it and those that fetch it. Addresses alone would not
// do: the garbage collector must see who uses the memory.
var shared struct {
	mu      sync.Mutex
	last    int64
	regions map[int64][][]byte
}

// allocHost makes a Region of Go memory for ranks of this process: rank 0 allocates, a broadcast tells the others which.
func allocHost(c *comm.Comm, bytes int) (*Region, error) {
	ticket := []int64{0, 0}
	if c.Rank() == 0 {
		ticket[0], ticket[1] = offer(c.Size(), bytes), int64(bytes)
		defer withdraw(ticket[0])
	}
	if err := c.Broadcast(comm.Stream{}, comm.Of(ticket, 2), 0); err != nil {
		return nil, err
	}
	shared.mu.Lock()
	peers := shared.regions[ticket[0]]
	shared.mu.Unlock()
	// Nobody may leave before all have fetched; a rank that wants another size tells the others here.
	sizes := make([]int64, c.Size())
	if err := c.AllGather(comm.Stream{}, comm.Of(sizes, 1), comm.Of([]int64{int64(bytes)}, 1)); err != nil {
		return nil, err
	}
	for rank, n := range sizes {
		if n != sizes[0] {
			return nil, comm.Errorf("symm.alloc", c.WorldRank(), comm.Invalid, "ranks disagree: rank 0 wants %d bytes, rank %d wants %d", sizes[0], rank, n)
		}
	}
	if len(peers) != c.Size() {
		return nil, comm.Errorf("symm.alloc", c.WorldRank(), comm.Unavailable, "rank 0 is in another process; host memory is symmetric in one process only")
	}
	r := &Region{comm: c, bytes: bytes, peers: peers}
	r.m.Host = peers[c.Rank()]
	for _, p := range peers {
		r.m.Base = append(r.m.Base, uintptr(unsafe.Pointer(unsafe.SliceData(p))))
	}
	r.m.Release = func(context.Context) error {
		r.peers = nil
		r.m.Base, r.m.Host = nil, nil
		return c.Barrier(comm.Stream{})
	}
	return r, nil
}

func offer(size, bytes int) int64 {
	peers := make([][]byte, size)
	for i := range peers {
		words := make([]int64, (bytes+7)/8+2) // 8-byte elements, and room to begin at a multiple of Align
		raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
		skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % Align)
		peers[i] = raw[skip : skip+bytes : skip+bytes]
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.last++
	if shared.regions == nil {
		shared.regions = map[int64][][]byte{}
	}
	shared.regions[shared.last] = peers
	return shared.last
}

func withdraw(ticket int64) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	delete(shared.regions, ticket)
}

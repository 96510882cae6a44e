package symm

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
)

// Memory is where the ranks of a world that spans processes get memory which all of them address: package symm/ipc takes it
// from CUDA IPC, package nvshmem from NVSHMEM's heap.
type Memory interface {
	// Heap is collective over the processes of the job: bytes of memory, with undefined content, on the device of every
	// rank. All processes ask for the same bytes.
	Heap(ctx context.Context, job Job, bytes int) (*Heap, error)
}

// Heap is one block of memory for each rank of a job, as this process sees it.
//
//	rank 0's process     Base[0][0] == Own[0]      Base[0][1] = where it mapped rank 1's block
//	rank 1's process     Base[0][0] = its mapping  Base[0][1] == Own[1]
//
// Every process maps a block at an address of its own. A rank tells others addresses as it sees them; who uses one adds
// Shift.
type Heap struct {
	Bytes int
	Own   []uintptr   // where each rank sees its own block
	Base  [][]uintptr // Base[i][rank]: where this process's i-th rank sees the block of rank
	// Close gives the memory back, when nothing uses it any more. It is collective; with a finished ctx it waits for nobody,
	// as is right when the world is dead.
	Close func(ctx context.Context) error
}

// Shift is what turns an address that rank gave into the one at which this process's i-th rank sees the same bytes. It wraps
// around.
func (h *Heap) Shift(i, rank int) uintptr { return h.Base[i][rank] - h.Own[rank] }

// Holds reports whether bytes at addr, as rank sees it, are in its block.
func (h *Heap) Holds(rank int, addr uintptr, bytes int) bool {
	offset := addr - h.Own[rank]
	return addr >= h.Own[rank] && bytes >= 0 && offset <= uintptr(h.Bytes) && uintptr(bytes) <= uintptr(h.Bytes)-offset
}

// Job is the ranks of a world and which of them are in this process.
type Job struct {
	Name    string // of the world: the beginning of its keys in the store
	Store   rendezvous.Store
	First   int           // this process holds ranks [First, First + len(Devices))
	Size    int           // of the world
	Devices []comm.Device // of this process's ranks
}

// Here reports whether a rank is in this process.
func (j Job) Here(rank int) bool { return rank >= j.First && rank < j.First+len(j.Devices) }

// Gather is an all_gather of small values over all ranks: mine[i] is what this process's i-th rank gives; the result is in
// rank order. Every process calls it, with the same names in the same order.
func (j Job) Gather(ctx context.Context, name string, mine [][]byte) ([][]byte, error) {
	if len(mine) != len(j.Devices) {
		return nil, fmt.Errorf("gather %q: %d values for %d ranks", name, len(mine), len(j.Devices))
	}
	ranks := make([]int, len(mine))
	for i := range ranks {
		ranks[i] = j.First + i
	}
	return Exchange(ctx, j.Store, j.Name+"/"+name, j.Size, ranks, mine)
}

// Exchange is rendezvous.Exchange for several ranks of this process at once: ranks[i] gives mine[i].
func Exchange(ctx context.Context, store rendezvous.Store, name string, size int, ranks []int, mine [][]byte) ([][]byte, error) {
	g, ctx := errgroup.WithContext(ctx)
	results := make([][][]byte, len(mine))
	for i := range mine {
		g.Go(func() (err error) {
			results[i], err = rendezvous.Exchange(ctx, store, name, ranks[i], size, mine[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return results[0], nil
}

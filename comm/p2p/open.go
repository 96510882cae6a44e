package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gpurank"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/symm"
)

// MaxRanks is the most ranks a world can have.
const MaxRanks = kernels.MaxRanks

// largestCluster is the blocks that may have to be resident at once beside the waiting ranks: the largest cluster anyone
// launches, or an ordinary kernel's first blocks.
const largestCluster = 16

// maxShared is the most ranks that may share a GPU: its 32 hardware queues serve a stream of each and one for the driver. Two
// streams on one queue run one after the other, and ranks that wait for each other must not.
const maxShared = 31

// aloneBlocks is the blocks of a rank that has a GPU to itself.
const aloneBlocks = 32

// Config says what to open.
type Config struct {
	// Devices are the GPUs of this process's ranks, one entry per rank. A device may be named more than once.
	Devices []comm.Device
	// FirstRank and Size are for worlds that span processes: this process holds ranks [FirstRank, FirstRank + len(Devices))
	// of Size. Size 0 means that all ranks are here.
	FirstRank, Size int
	// Store is where the processes of a world meet. It is needed only then.
	Store rendezvous.Store
	// Name separates worlds that share a Store; "" means "p2p". The processes of a world give the same name and open worlds of
	// one name in the same order; after an Open that failed they go on with another name.
	Name string
	// Memory is where the ranks of a world that spans processes get their memory. nil means ipc.Memory{}: CUDA IPC.
	Memory symm.Memory
	// Workspace is the bytes that each rank takes from its device at once, for comm.Alloc and the driver's own tables. 0
	// means 64 MiB. When it is used up, the rank takes more, unless the world spans processes: then this is all it has.
	Workspace int
	// Blocks is the blocks of a rank's largest launches. 0 means what fits. On a shared GPU
	// (ranks - 1) x Blocks + 16 must fit its multiprocessors.
	Blocks int
	// Timeout is the longest wait of a kernel for another rank. 0 means 60 s.
	Timeout time.Duration
}

func (cfg *Config) complete() error {
	if len(cfg.Devices) == 0 || len(cfg.Devices) > MaxRanks {
		return fmt.Errorf("%d ranks; use 1 to %d", len(cfg.Devices), MaxRanks)
	}
	if cfg.Timeout < 0 || cfg.Workspace < 0 || cfg.Blocks < 0 {
		return fmt.Errorf("timeout %v, workspace %d bytes, %d blocks: none may be negative", cfg.Timeout, cfg.Workspace, cfg.Blocks)
	}
	for rank, d := range cfg.Devices {
		if d.Kind != comm.CUDA || d.Index < 0 {
			return fmt.Errorf("rank %d: %v is no GPU", rank, d)
		}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 60 * time.Second
	}
	if cfg.Workspace == 0 {
		cfg.Workspace = 64 << 20
	}
	return cfg.completeSpan()
}

// Open makes a world of ranks in this process, and those of other processes that open the same world. It compiles and loads the
// kernels, or takes them from the cache. Errors are Unavailable without a driver, a compiler, a device or peer access, and
// Invalid for ranks that do not fit a shared GPU.
func Open(ctx context.Context, cfg Config) (*comm.World, error) {
	if err := cfg.complete(); err != nil {
		return nil, &comm.Error{Op: "open p2p", Peer: comm.NoPeer, Code: comm.Invalid, Err: err}
	}
	w := &world{cfg: cfg, dead: make(chan struct{}), gpus: map[int]*gpu{}}
	if err := w.open(ctx); err != nil {
		err = errors.Join(err, w.giveUp(err))
		if e := (*comm.Error)(nil); errors.As(err, &e) {
			return nil, err
		}
		return nil, &comm.Error{Op: "open p2p", Rank: cfg.FirstRank, Peer: comm.NoPeer, Code: gpurank.CodeOf(err), Err: err}
	}
	comms := make([]*comm.Comm, len(w.local))
	for i, r := range w.local {
		comms[i] = comm.New(r.main, r.index, len(w.ranks))
	}
	all := w.announce(comm.NewWorld(comms))
	if err := w.useTable(ctx, all); err != nil {
		return nil, errors.Join(err, all.Close(ctx))
	}
	return all, nil
}

// giveUp ends a world that cannot open: the other processes hear why.
func (w *world) giveUp(cause error) error {
	if w.span == nil {
		return w.free()
	}
	w.kill(cause)
	return errors.Join(w.part(context.Background()), w.free())
}

// open takes devices, kernels, memory and streams.
func (w *world) open(ctx context.Context) error {
	numRanks := map[int]int{}
	for _, d := range w.cfg.Devices {
		numRanks[d.Index]++
	}
	for index, n := range numRanks {
		dev, err := cuda.Open(index)
		if err != nil {
			return err
		}
		w.gpus[index] = &gpu{dev: dev, ranks: n}
		if len(w.cfg.Devices) > 1 || w.cfg.spanning() {
			w.gpus[index].release = dev.Hold()
		}
	}
	if w.cfg.spanning() {
		if err := w.greet(ctx); err != nil {
			return err
		}
	}
	if err := w.enablePeers(); err != nil {
		return err
	}
	for index, g := range w.gpus {
		if ctx.Err() != nil {
			return comm.Errorf("open p2p", w.cfg.FirstRank, comm.Aborted, "%w", context.Cause(ctx))
		}
		var err error
		if g.blocks, err = fit(w.cfg.Blocks, w.sharing(g), g.dev.Info().SMs); err != nil {
			return comm.Errorf("open p2p", w.cfg.FirstRank, comm.Invalid, "cuda:%d: %w", index, err)
		}
		if g.aux, err = g.dev.NewStream(0); err != nil {
			return err
		}
		if g.kernels, err = kernels.Load(g.dev); err != nil {
			return err
		}
	}
	if w.span != nil {
		if err := w.openHeap(ctx); err != nil {
			return err
		}
	}
	if err := w.openRanks(); err != nil {
		return err
	}
	if err := w.openGroup(ctx); err != nil {
		return err
	}
	return w.warm(ctx)
}

// enablePeers lets every GPU address the others' memory.
func (w *world) enablePeers() error {
	pairs := func(each func(a, b *gpu) error) error {
		for _, a := range w.gpus {
			for _, b := range w.gpus {
				if a == b {
					continue
				}
				if err := each(a, b); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err := pairs(func(a, b *gpu) error {
		can, err := a.dev.CanAccess(b.dev)
		if err == nil && !can {
			err = comm.Errorf("open p2p", w.cfg.FirstRank, comm.Unavailable,
				"cuda:%d cannot address the memory of cuda:%d; use GPUs of one NVLink or PCIe root (weft doctor lists the pairs)",
				a.dev.Ordinal(), b.dev.Ordinal())
		}
		return err
	})
	if err != nil { // before any access is enabled, so that the same pair is blamed each time
		return err
	}
	return pairs(func(a, b *gpu) error { return a.dev.EnablePeer(b.dev) })
}

// openGroup makes the group of all ranks.
func (w *world) openGroup(ctx context.Context) error {
	g := newGroup(w, slices.Clone(w.ranks))
	if w.span != nil {
		g.key = w.span.job.Name
	}
	if err := g.connect(ctx, "tables", g.conns); err != nil {
		return err
	}
	for _, r := range w.local {
		r.main = g.conns[r.index]
	}
	return nil
}

// fit returns the blocks of a rank, or why so many ranks cannot wait for each other on one GPU of numSMs multiprocessors.
func fit(blocks, ranks, numSMs int) (int, error) {
	if ranks == 1 {
		if blocks == 0 {
			blocks = aloneBlocks
		}
		return min(blocks, numSMs), nil
	}
	if ranks > maxShared {
		return 0, fmt.Errorf("%d ranks cannot share it: it has queues for %d", ranks, maxShared)
	}
	if blocks == 0 {
		blocks = min((numSMs-largestCluster)/(ranks-1), numSMs/ranks)
	}
	if blocks < 1 || (ranks-1)*blocks+largestCluster > numSMs {
		return 0, fmt.Errorf("%d ranks cannot share it: while the others wait, (%d - 1) ranks x %d blocks + a cluster of %d = %d must fit its %d multiprocessors; use fewer ranks or blocks",
			ranks, ranks, max(1, blocks), largestCluster, (ranks-1)*max(1, blocks)+largestCluster, numSMs)
	}
	return blocks, nil
}

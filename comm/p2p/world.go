package p2p

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gpurank"
	"github.com/weftgo/weft/internal/kernels"
)

// gpu is one device of a world.
type gpu struct {
	dev     *cuda.Device
	kernels *kernels.Set
	ranks   int          // that share it
	blocks  int          // of one rank
	release func() error // of the hold on dev, while ranks may wait for each other; nil for a world of one
	lost    bool         // no rank that is left uses it; see leaveBehind

	mu  sync.Mutex   // of aux
	aux *cuda.Stream // for work that waits for no rank: one for all, because hardware queues are few
}

// aside runs fn on the stream that waits for no rank, and waits for it.
func (g *gpu) aside(fn func(s *cuda.Stream) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := fn(g.aux); err != nil {
		return err
	}
	return g.aux.Wait(context.Background())
}

// world is what all ranks share.
type world struct {
	cfg   Config
	table *tuning // how calls are launched by size; nil: by the driver's rules
	gpus  map[int]*gpu
	ranks []*rank // of the whole world; those of other processes are away
	local []*rank // of this process
	span  *span   // nil when all ranks are here

	pinned  *cuda.Pinned // the abort word, then every rank's records
	abort   *uint64      // in pinned memory; kernels look at it now and then
	numOpen atomic.Int32 // ranks whose main Conn is not closed
	owes    bool         // Without began to give everything back, and could not

	once      sync.Once
	dead      chan struct{}
	cause     error // set before dead is closed
	numGroups atomic.Uint64
}

// kill ends the world: kernels that wait leave, later calls are refused. Only the first cause counts.
func (w *world) kill(cause error) {
	w.once.Do(func() {
		w.cause = cause
		close(w.dead)
		if w.abort != nil {
			atomic.StoreUint64(w.abort, 1)
		}
	})
}

func (w *world) alive() bool {
	select {
	case <-w.dead:
		return false
	default:
		return true
	}
}

// rank is one rank's streams and memory, shared by its Conns of all groups. Of a rank that is away there are index and words.
type rank struct {
	w     *world
	index int         // in the world
	away  bool        // in another process
	lost  atomic.Bool // its goroutine or its GPU may be stuck; see leaveBehind
	gpu   *gpu
	main  *conn

	streams gpurank.Streams
	memory  gpurank.Memory

	words    uintptr // a kernels.Rank in device memory, as the rank sees it
	arena    arena
	copyArgs *kernels.MemoryArgs // of a copy; an allocation of its own: C gets its address
	records  *[kernels.NumRecords]kernels.Record
	next     uint64 // number of the next record to read

	mu    sync.Mutex
	conns []*conn // of all groups; peers look for the group of a record
}

// groupOf returns the rank's Conn of a group, nil if it has none.
func (r *rank) groupOf(id uint64) *conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		if c.g.id == id {
			return c
		}
	}
	return nil
}

func (w *world) openRanks() error {
	first := w.gpus[w.cfg.Devices[0].Index].dev
	var err error
	if w.pinned, err = first.AllocHost(recordBytes * (len(w.cfg.Devices) + 1)); err != nil {
		return err
	}
	clear(w.pinned.Bytes())
	w.abort = (*uint64)(unsafe.Pointer(unsafe.SliceData(w.pinned.Bytes())))
	w.ranks = make([]*rank, w.cfg.Size)
	for i := range w.ranks {
		w.ranks[i] = &rank{w: w, index: i, away: true}
	}
	for i, d := range w.cfg.Devices {
		r := &rank{w: w, index: w.cfg.FirstRank + i, gpu: w.gpus[d.Index], next: 1, copyArgs: new(kernels.MemoryArgs)}
		at := w.pinned.Bytes()[recordBytes*(i+1):]
		r.records = (*[kernels.NumRecords]kernels.Record)(unsafe.Pointer(unsafe.SliceData(at)))
		w.ranks[r.index] = r
		w.local = append(w.local, r)
		if err := r.open(); err != nil {
			return fmt.Errorf("rank %d on cuda:%d: %w", r.index, d.Index, err)
		}
	}
	w.numOpen.Store(int32(len(w.local)))
	return nil
}

func (r *rank) open() (err error) {
	r.streams.Shared = r.gpu.ranks > 1
	if err = r.streams.Open(r.gpu.dev); err != nil {
		return err
	}
	r.memory = gpurank.Memory{Rank: r.index, Device: r.device(), Streams: &r.streams}
	if err = r.memory.Open(r.gpu.dev); err != nil {
		return err
	}
	r.arena.grow = r.moreMemory
	if r.w.span != nil {
		r.arena.grow = r.block
	}
	if err := r.arena.more(r.w.cfg.Workspace); err != nil {
		return err
	}
	r.words, err = r.zeroed(int(unsafe.Sizeof(kernels.Rank{})))
	return err
}

// moreMemory maps another piece of device memory that all GPUs of the world may address.
func (r *rank) moreMemory(bytes int) (base uintptr, size int, release func() error, err error) {
	devices := make([]*cuda.Device, 0, len(r.w.gpus))
	for _, g := range r.w.gpus {
		devices = append(devices, g.dev)
	}
	granularity, err := cuda.Granularity(devices...)
	if err != nil {
		return 0, 0, nil, err
	}
	size = cuda.RoundUp(bytes, granularity)
	span, err := r.gpu.dev.Reserve(size)
	if err != nil {
		return 0, 0, nil, err
	}
	p, err := r.gpu.dev.Create(size, false)
	if err == nil {
		err = errors.Join(span.Map(0, p), p.Close())
	}
	if err == nil {
		err = span.SetAccess(devices...)
	}
	if err != nil {
		return 0, 0, nil, errors.Join(err, span.Close())
	}
	return span.Base(), size, span.Close, nil
}

// zeroed returns cleared memory of the arena. The clearing waits for no other rank.
func (r *rank) zeroed(bytes int) (uintptr, error) {
	addr, err := r.arena.alloc(bytes)
	if err != nil {
		return 0, err
	}
	if err := r.gpu.aside(func(s *cuda.Stream) error { return s.Fill(addr, 0, bytes) }); err != nil {
		return 0, errors.Join(err, r.arena.free(addr))
	}
	return addr, nil
}

// close is called once for each rank; the last one frees everything.
func (w *world) close(ctx context.Context) error {
	if w.numOpen.Add(-1) > 0 {
		return nil
	}
	return w.end(ctx)
}

// end frees everything when no kernel can touch it any more.
func (w *world) end(ctx context.Context) error {
	// A finished ctx does not keep memory: weft's kernels end by their deadlines, which this waits for at most.
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.Timeout+5*time.Second)
	defer cancel()
	for _, r := range w.local {
		if r.lost.Load() {
			continue
		}
		if err := r.streams.Own.Wait(limit); err != nil {
			return comm.Errorf("close", r.index, comm.Internal, "its kernels do not end, so no memory is freed: %w", err)
		}
	}
	if w.span != nil {
		return errors.Join(w.part(ctx), w.free())
	}
	return w.free()
}

// free gives everything back but what was left behind.
func (w *world) free() error {
	var errs []error
	for _, g := range w.gpus {
		if g.release != nil && !g.lost {
			errs = append(errs, g.release())
		}
	}
	lost := map[*gpu]bool{}
	var stay []*rank
	for _, r := range w.local {
		if r.lost.Load() {
			lost[r.gpu], stay = true, append(stay, r)
			continue
		}
		errs = append(errs, r.arena.close(), r.memory.Close(), r.streams.Close())
	}
	w.local = stay
	if len(stay) == 0 {
		w.ranks = nil
	}
	if w.pinned != nil && len(stay) == 0 {
		errs = append(errs, w.pinned.Close())
		w.pinned = nil
	}
	for index, g := range w.gpus {
		if g.lost {
			continue
		}
		if g.aux != nil {
			errs = append(errs, g.aux.Close())
			g.aux = nil
		}
		if g.kernels != nil {
			errs = append(errs, g.kernels.Close())
			g.kernels = nil
		}
		if !lost[g] {
			errs = append(errs, g.dev.Close())
			delete(w.gpus, index)
		}
	}
	return errors.Join(errs...)
}

// device is where a rank's buffers live.
func (r *rank) device() comm.Device {
	return comm.Device{Kind: comm.CUDA, Index: r.gpu.dev.Ordinal()}
}

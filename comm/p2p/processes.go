package p2p

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"sync"
	"sync/atomic"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/internal/lastwords"
	"github.com/weftgo/weft/symm"
	"github.com/weftgo/weft/symm/ipc"
)

// A world may span processes. What changes, and what does not:
//
//   - Kernels are the same. They meet through tables of addresses, which each process fills with addresses that it sees.
//   - A rank's memory is one block of a symm.Heap, which every process maps, at an address of its own. A rank publishes
//     addresses as it sees them; who uses one adds a number per pair of ranks (Ctl.Shift), 0 inside a process. So arenas do
//     not grow, and buffers of collectives must be of comm.Alloc or symm.Alloc: other memory no peer can see.
//   - What the host halves of Open, Split and AllocSymmetric agree on goes through the store when members are in other
//     processes; the members of one process meet in memory first, and one of them speaks for all.
//   - A world that dies in one process dies in all. Kernels raise the abort words of all ranks when they give up, as ever;
//     Abort, and the loss of a process, which the store reports, go through the store: each process watches one key.
//   - Memory goes back when all processes have closed; when the world is dead nobody waits for anybody.
//
// Processes that share a GPU without MPS take turns on it: a wait costs time slices, milliseconds instead of microseconds.

// span is what a world has that is in several processes.
type span struct {
	job    symm.Job
	hellos []hello // of all ranks
	heap   *symm.Heap

	open    atomic.Pointer[comm.World]
	line    *lastwords.Line
	closing chan struct{}
	work    sync.WaitGroup // what tells of the world's death

	mu      sync.Mutex
	retired []*symmetric // released here, maybe not yet elsewhere
}

// hello is what the ranks of a world tell each other first.
type hello struct {
	First, Num, Size int
	Workspace        int
	Timeout          int64
	Device           string // UUID: ranks of several processes may share a GPU
	Kernels          uint64 // hash of the source
	Nonce            string // of rank 0 counts: it names the world in the store
	PID              int
	Process          int // its number in the store's job; -1 when the store does not say
}

// spanning reports whether ranks are in other processes.
func (cfg *Config) spanning() bool { return cfg.Size > len(cfg.Devices) }

func (cfg *Config) completeSpan() error {
	if cfg.Size == 0 {
		cfg.Size = cfg.FirstRank + len(cfg.Devices)
	}
	if cfg.FirstRank < 0 || cfg.FirstRank+len(cfg.Devices) > cfg.Size || cfg.Size > MaxRanks {
		return fmt.Errorf("ranks %d to %d of %d; a world has 1 to %d", cfg.FirstRank, cfg.FirstRank+len(cfg.Devices)-1, cfg.Size, MaxRanks)
	}
	if cfg.spanning() && cfg.Store == nil {
		return fmt.Errorf("%d of %d ranks are here; a world in several processes needs a Store", len(cfg.Devices), cfg.Size)
	}
	if cfg.Name == "" {
		cfg.Name = "p2p"
	}
	if cfg.Memory == nil {
		cfg.Memory = ipc.Memory{}
	}
	return nil
}

// greet lets all ranks agree on what the world is, and begins to watch for its death.
func (w *world) greet(ctx context.Context) error {
	cfg := w.cfg
	s := &span{job: symm.Job{Name: cfg.Name, Store: cfg.Store, First: cfg.FirstRank, Size: cfg.Size, Devices: cfg.Devices}}
	mine := make([][]byte, len(cfg.Devices))
	h := hello{First: cfg.FirstRank, Num: len(cfg.Devices), Size: cfg.Size, Workspace: cfg.Workspace, Timeout: int64(cfg.Timeout),
		Kernels: sourceHash(), Nonce: rand.Text(), PID: os.Getpid(), Process: -1}
	if s, ok := cfg.Store.(interface{ Job() rendezvous.Job }); ok {
		h.Process = s.Job().Rank
	}
	for i, d := range cfg.Devices {
		h.Device = w.gpus[d.Index].dev.Info().UUID
		mine[i] = encode(h)
	}
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	all, err := s.job.Gather(ctx, "hello", mine)
	if err != nil {
		return err
	}
	for rank, b := range all {
		var got hello
		if err := json.Unmarshal(b, &got); err != nil {
			return comm.Errorf("open p2p", cfg.FirstRank, comm.Internal, "rank %d says %q: %w", rank, b, err)
		}
		s.hellos = append(s.hellos, got)
	}
	if err := fitting(s.hellos, cfg.FirstRank); err != nil {
		return err
	}
	s.job.Name = cfg.Name + "/" + s.hellos[0].Nonce
	w.span = s
	w.watch()
	return nil
}

// announce makes the death of the world in another process that of the World of this one.
func (w *world) announce(open *comm.World) *comm.World {
	if w.span != nil {
		w.span.open.Store(open)
		if !w.alive() {
			open.Abort(w.cause)
		}
	}
	return open
}

// fitting compares what the ranks want.
func fitting(hellos []hello, first int) error {
	for rank, h := range hellos {
		own := hellos[first]
		say := func(what string, mine, theirs any) error {
			return comm.Errorf("open p2p", first, comm.Invalid, "ranks disagree on the %s: rank %d has %v, rank %d (process %d) has %v", what, first, mine, rank, h.PID, theirs)
		}
		switch {
		case h.Size != own.Size:
			return say("size", own.Size, h.Size)
		case h.Workspace != own.Workspace:
			return say("workspace", own.Workspace, h.Workspace)
		case h.Timeout != own.Timeout:
			return say("timeout in nanoseconds", own.Timeout, h.Timeout)
		case h.Kernels != own.Kernels:
			return say("version of weft", own.Kernels, h.Kernels)
		case rank < h.First || rank >= h.First+h.Num:
			return say("ranks", fmt.Sprint(own.First, "+", own.Num), fmt.Sprint(h.First, "+", h.Num))
		}
	}
	return nil
}

// sourceHash tells versions of the kernels apart: they meet in memory, so they must be the same.
func sourceHash() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(kernels.Program("").Source))
	return h.Sum64()
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and strings
	}
	return b
}

// sharing counts the ranks of the whole world on a GPU.
func (w *world) sharing(g *gpu) int {
	if w.span == nil {
		return g.ranks
	}
	n := 0
	for _, h := range w.span.hellos {
		if h.Device == g.dev.Info().UUID {
			n++
		}
	}
	return n
}

// openHeap takes the ranks' blocks.
func (w *world) openHeap(ctx context.Context) error {
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	heap, err := w.cfg.Memory.Heap(ctx, w.span.job, w.cfg.Workspace)
	if err == nil {
		w.span.heap = heap
	}
	return w.died(err)
}

// block is how the arena of a rank in a span grows: once, to the rank's block.
func (r *rank) block(bytes int) (base uintptr, size int, release func() error, err error) {
	heap := r.w.span.heap
	if r.arena.release != nil {
		return 0, 0, nil, comm.Errorf("", r.index, comm.Unavailable, "the %d bytes that other processes map are used up, %d more are wanted; raise Config.Workspace", heap.Bytes, bytes)
	}
	return heap.Own[r.index], heap.Bytes, func() error { return nil }, nil
}

// shift is what r adds to an address of p.
func (r *rank) shift(p *rank) uintptr {
	if s := r.w.span; s != nil && p.away {
		return s.heap.Shift(r.index-s.job.First, p.index)
	}
	return 0
}

// reachable checks that the ranks of other processes can see an operation's buffers.
func (c *conn) reachable(parts []comm.Part) error {
	for i := range parts {
		for _, b := range []comm.Buffer{parts[i].Dst, parts[i].Src} {
			if b.IsZero() || b.Rows() == 0 {
				continue
			}
			bytes := ((b.Rows()-1)*b.Stride() + b.Cols()) * b.DType().Size()
			if !c.g.w.span.heap.Holds(c.r.index, b.Addr(), bytes) {
				return fmt.Errorf("part %d: %v is not memory of comm.Alloc or symm.Alloc, and ranks of other processes see no other", i, b)
			}
		}
	}
	return nil
}

// exchange gives every member's value to all members: mine holds those of this process's members, at their places. name must
// be the group's next one on all processes.
func (g *group) exchange(ctx context.Context, name string, mine [][]byte) ([][]byte, error) {
	if !g.foreign() {
		return mine, nil
	}
	var ranks []int
	var values [][]byte
	for i, r := range g.members {
		if !r.away {
			ranks, values = append(ranks, i), append(values, mine[i])
		}
	}
	ctx, cancel := g.w.bounded(ctx)
	defer cancel()
	all, err := symm.Exchange(ctx, g.w.cfg.Store, g.key+"/"+name, len(g.members), ranks, values)
	return all, g.w.died(err)
}

// bounded ends ctx after the world's timeout, and when the world dies.
func (w *world) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithTimeout(ctx, w.cfg.Timeout)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-w.dead:
			cancel(w.cause)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		stop()
	}
}

// died puts the world's death in the place of an error that came of it.
func (w *world) died(err error) error {
	if err == nil || w.alive() || errors.Is(err, w.cause) {
		return err
	}
	return comm.AbortedError("p2p", w.cfg.FirstRank, fmt.Errorf("the world is dead: %w", w.cause))
}

// part is the end of a span: all processes have closed, or the world is dead and nobody waits.
func (w *world) part(ctx context.Context) error {
	s := w.span
	var err error
	if w.alive() && ctx.Err() == nil {
		limit, cancel := w.bounded(ctx)
		_, err = s.job.Gather(limit, "close", make([][]byte, len(w.cfg.Devices)))
		if err == nil {
			err = errors.Join(w.forgetRetired(limit), s.heap.Close(limit))
			s.heap = nil
		}
		cancel()
	}
	if s.heap != nil { // waits for nobody
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		err = errors.Join(w.died(err), s.heap.Close(ended))
	}
	close(s.closing)
	s.work.Wait()
	s.line.Close()
	return err
}

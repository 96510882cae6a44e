package ncclworld

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gpurank"
	"github.com/weftgo/weft/internal/lastwords"
)

// world is what the ranks of this process share.
type world struct {
	cfg     Config
	comm    *comm.World
	ranks   []*rank // of this process
	prefix  string  // of this world's keys in the store
	numOpen atomic.Int32

	life context.Context // ends with the cause when the world dies
	end  context.CancelCauseFunc
	once sync.Once
	work sync.WaitGroup
	stop context.CancelFunc             // of the watch on the store
	line atomic.Pointer[lastwords.Line] // to the other processes; nil when there are none

	mu        sync.Mutex
	groups    map[groupKey]*group // that some local members of have not joined yet
	numGroups uint64
}

// kill ends this process's part of the world: kernels that wait leave, later calls are refused. Only the first cause counts.
// It returns at once; close waits for what it began.
func (w *world) kill(cause error) {
	w.once.Do(func() {
		w.end(cause)
		for _, r := range w.ranks {
			for _, c := range r.all() {
				w.work.Go(func() { _ = c.raw().Abort() }) // its error is of a communicator that is gone anyhow
			}
		}
		w.work.Go(func() { w.tell(cause) })
	})
}

func (w *world) alive() bool { return w.life.Err() == nil }

// deadError is the error of calls on a dead world.
func (w *world) deadError(op string, rank int) error {
	return comm.AbortedError(op, rank, fmt.Errorf("the world is dead: %w", context.Cause(w.life)))
}

// rank is one local rank's streams and memory, shared by its Conns of all groups.
type rank struct {
	w     *world
	index int // in the world
	dev   *cuda.Device
	main  *conn

	release func() error // of the hold on dev, while NCCL's kernels may wait for other ranks; nil for a world of one

	streams gpurank.Streams
	memory  gpurank.Memory
	aside   *cuda.Stream // for work that waits for no rank

	pool  gpurank.Pool
	word  uintptr       // what barriers add up
	stage gpurank.Block // where rows without gaps are made of rows with gaps

	mu    sync.Mutex              // of changes to conns
	conns atomic.Pointer[[]*conn] // of all groups that are not closed
}

func (r *rank) open() (err error) {
	r.pool.Device = r.dev
	if err = r.streams.Open(r.dev); err != nil {
		return err
	}
	if r.aside, err = r.dev.NewStream(0); err != nil {
		return err
	}
	r.memory = gpurank.Memory{Rank: r.index, Device: r.device(), Streams: &r.streams}
	if err = r.memory.Open(r.dev); err != nil {
		return err
	}
	r.word, err = r.zeroed(256)
	return err
}

// all returns the rank's Conns.
func (r *rank) all() []*conn {
	if list := r.conns.Load(); list != nil {
		return *list
	}
	return nil
}

func (r *rank) add(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := append(slices.Clone(r.all()), c)
	r.conns.Store(&list)
}

func (r *rank) remove(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(r.all()), func(x *conn) bool { return x == c })
	r.conns.Store(&list)
}

// zeroed returns cleared memory.
func (r *rank) zeroed(bytes int) (uintptr, error) {
	b, err := r.pool.Take(bytes)
	if err != nil {
		return 0, err
	}
	err = r.aside.Fill(b.Addr, 0, bytes)
	if err == nil {
		err = r.aside.Wait(context.Background())
	}
	return b.Addr, err
}

// device is where the rank's buffers live.
func (r *rank) device() comm.Device { return comm.Device{Kind: comm.CUDA, Index: r.dev.Ordinal()} }

// patience is how long a close waits for kernels of a dead world to leave.
const patience = 10 * time.Second

// close is called once for each local rank; the last one frees everything.
func (w *world) close(ctx context.Context) error {
	if w.numOpen.Add(-1) > 0 {
		return nil
	}
	if w.stop != nil {
		w.stop()
	}
	w.once.Do(func() {}) // an Abort that comes now finds nothing to end
	w.work.Wait()
	if line := w.line.Load(); line != nil {
		line.Close()
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	for _, r := range w.ranks {
		if err := r.streams.Own.Wait(limit); err != nil && w.alive() {
			return comm.Errorf("close", r.index, comm.Internal, "its kernels do not end, so no memory is freed: %w", err)
		}
	}
	return w.free()
}

// free gives everything back.
func (w *world) free() error {
	var errs []error
	for _, r := range w.ranks {
		for _, c := range r.all() {
			errs = append(errs, c.raw().Abort())
		}
		if r.release != nil {
			errs = append(errs, r.release())
		}
		if r.aside != nil {
			errs = append(errs, r.aside.Close())
		}
		errs = append(errs, r.memory.Close(), r.streams.Close(), r.pool.Close(), r.dev.Close())
	}
	return errors.Join(errs...)
}

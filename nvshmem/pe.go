package nvshmem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/cuda"
)

// idBytes is the size of a unique id.
const idBytes = 128

// What nvshmemx_init_status returns.
const (
	statusReady   = 2 // one PE a GPU
	statusLimited = 3 // several PEs share a GPU, without MPS
	statusShared  = 4 // several PEs share a GPU, with MPS
)

// Config says which PE this process is.
type Config struct {
	Device     int // the process's GPU
	Rank, Size int
	Store      rendezvous.Store // where the unique id travels
	// HeapBytes is the symmetric heap of each PE; 0 means 1 GiB. A set NVSHMEM_SYMMETRIC_SIZE goes before.
	HeapBytes int
	// Timeout bounds each call that waits for other PEs and whose ctx has no deadline. 0 means 60 s.
	Timeout time.Duration
}

// PE is this process among those of the job. Any goroutine may use it; calls go one at a time, as the library wants.
type PE struct {
	cfg     Config
	dev     *cuda.Device
	limited bool
	turn    chan struct{} // holds one token while no call is in the library
	broken  atomic.Pointer[Error]
	closed  bool // guarded by turn
	closing atomic.Bool
}

// used says that NVSHMEM was initialised in this process: a second time is not safe in every version.
var used atomic.Bool

// Open initialises NVSHMEM, once in a process; it is collective over the job's ranks, which must all come before the deadline
// of ctx or Config.Timeout. Errors: Unavailable without the library or a GPU, and when NVSHMEM does not start; Timeout names the
// ranks that did not come. When the wait ends inside the library, the device stays open until the process ends.
func Open(ctx context.Context, cfg Config) (*PE, error) {
	switch {
	case cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size:
		return nil, errorf(comm.Invalid, "rank %d of %d: Size must be at least 1, and Rank in [0, Size)", cfg.Rank, cfg.Size)
	case cfg.Store == nil:
		return nil, errorf(comm.Invalid, "no Store, in which the ranks find the unique id; use what rendezvous.Join returns")
	case cfg.HeapBytes < 0 || cfg.Timeout < 0:
		return nil, errorf(comm.Invalid, "a heap of %d bytes and a timeout of %v must not be negative; 0 takes the default", cfg.HeapBytes, cfg.Timeout)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 60 * time.Second
	}
	if cfg.HeapBytes == 0 {
		cfg.HeapBytes = 1 << 30
	}
	if err := Init(); err != nil {
		return nil, err
	}
	if used.Swap(true) {
		return nil, errorf(comm.Unavailable, "it was initialised in this process before, and can be only once")
	}
	dev, err := cuda.Open(cfg.Device)
	if err != nil {
		return nil, err
	}
	p := &PE{cfg: cfg, dev: dev, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	if err := p.start(ctx); err != nil {
		if p.broken.Load() != nil {
			return nil, err // a thread is in the library with the device's context, which must stay
		}
		return nil, errors.Join(err, dev.Close())
	}
	return p, nil
}

// start sets the variables, shares the unique id and initialises.
func (p *PE) start(ctx context.Context) error {
	for _, v := range [][2]string{{"NVSHMEM_SYMMETRIC_SIZE", strconv.Itoa(p.cfg.HeapBytes)}, {"NVSHMEM_REMOTE_TRANSPORT", "none"}, {"NVSHMEM_DISABLE_NVLS", "1"}} {
		if os.Getenv(v[0]) == "" {
			if err := os.Setenv(v[0], v[1]); err != nil {
				return err
			}
		}
	}
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	var id []byte
	code := 0
	if p.cfg.Rank == 0 {
		if err := p.wait(ctx, "get the unique id", func() { id, code = uniqueID(p.dev.Context()) }); err != nil {
			return err
		}
		if code != 0 {
			id = []byte(fmt.Sprint("rank 0 got no unique id: code ", code))
		}
	}
	ids, err := rendezvous.Exchange(ctx, p.cfg.Store, "nvshmem/id", p.cfg.Rank, p.cfg.Size, id)
	if err != nil {
		return err
	}
	if id = ids[0]; len(id) != idBytes {
		return errorf(comm.Unavailable, "%s", id)
	}
	if err := p.wait(ctx, "initialise", func() { code = initialize(p.dev.Context(), p.cfg.Rank, p.cfg.Size, id) }); err != nil {
		return err
	}
	status := initStatus()
	if code != 0 || status < statusReady {
		return errorf(comm.Unavailable, "NVSHMEM %v did not start: code %d, status %d (NVSHMEM_DEBUG=INFO says more)", loaded.version, code, status)
	}
	if pe, n := myPE(), numPEs(); pe != p.cfg.Rank || n != p.cfg.Size {
		return errorf(comm.Internal, "rank %d of %d is PE %d of %d", p.cfg.Rank, p.cfg.Size, pe, n)
	}
	p.limited = status == statusLimited
	return nil
}

func (p *PE) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, p.cfg.Timeout)
}

// enter waits for this goroutine's turn in the library, and takes it.
func (p *PE) enter(ctx context.Context, what string) error {
	if e := p.broken.Load(); e != nil {
		return e
	}
	select {
	case <-p.turn:
	default:
		ctx, cancel := p.bounded(ctx)
		defer cancel()
		select {
		case <-p.turn:
		case <-ctx.Done():
			return p.late(ctx, what+": another call is in the library")
		}
	}
	if p.closed {
		p.leave()
		return errorf(comm.Invalid, "%s: the PE is closed", what)
	}
	return nil
}

// leave ends the turn.
func (p *PE) leave() { p.turn <- struct{}{} }

// wait runs a call that may wait for other PEs. When ctx ends first the PE is broken: the thread stays in the call.
func (p *PE) wait(ctx context.Context, what string, call func()) error {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	if err := p.enter(ctx, what); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		call()
		p.leave()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		select {
		case <-done:
			return nil
		default:
		}
		err := p.late(ctx, what+": other PEs did not come, and this one cannot be used any more")
		p.broken.CompareAndSwap(nil, err)
		return err
	}
}

func (p *PE) late(ctx context.Context, what string) *Error {
	e := &Error{Text: what, Code: comm.Aborted, Err: context.Cause(ctx)}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Code = comm.Timeout
	}
	return e
}

// Rank returns this PE's number, which is its rank in the job.
func (p *PE) Rank() int { return p.cfg.Rank }

// Size returns the number of PEs.
func (p *PE) Size() int { return p.cfg.Size }

// Device returns the PE's GPU.
func (p *PE) Device() *cuda.Device { return p.dev }

// Version returns the library's version.
func (p *PE) Version() Version { return loaded.version }

// Limited reports whether PEs share a GPU without MPS, where NVSHMEM has no teams, collectives and waits for signals.
func (p *PE) Limited() bool { return p.limited }

// Close finalises NVSHMEM. It is collective. With a finished ctx, or when a call did not return, it waits for nobody and leaves
// the library as it is: memory then goes back with the process. So it does, and the device stays open for the library, when the
// other PEs do not come. A later call does nothing.
func (p *PE) Close(ctx context.Context) error {
	if ctx.Err() != nil || p.broken.Load() != nil {
		return nil
	}
	if p.closing.Swap(true) {
		return nil
	}
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	if _, err := rendezvous.Exchange(ctx, p.cfg.Store, "nvshmem/close", p.cfg.Rank, p.cfg.Size, nil); err != nil {
		return err
	}
	err := p.wait(ctx, "finalise", func() {
		run(p.dev.Context(), callFinalize, &[8]uint64{})
		p.closed = true
	})
	if err != nil {
		return err
	}
	return p.dev.Close()
}

package comm

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weftgo/weft/internal/par"
)

// World is the ranks of this process that work together, and whether they still can. Its methods may be called by any
// goroutine.
type World struct {
	local []*Comm
	done  chan struct{}
	once  sync.Once
	busy  atomic.Bool // in Run
	dead  atomic.Bool // done is closed: what every call looks at
	mu    sync.Mutex
	err   error

	inside   []chan struct{} // for each local rank of the latest Run: closed when its function has returned
	reformed atomic.Bool     // Without was called
}

// NewWorld gathers the Comms that a driver opened in this process, one for each local rank.
func NewWorld(local []*Comm) *World {
	w := &World{local: local, done: make(chan struct{})}
	for _, c := range local {
		c.world.Store(w)
	}
	return w
}

// Size returns the number of ranks of the whole world, those of other processes included.
func (w *World) Size() int {
	if len(w.local) == 0 {
		return 0
	}
	return w.local[0].size
}

// Local returns the Comms of this process, for callers with goroutines of their own.
func (w *World) Local() []*Comm { return w.local }

// Done is closed when the world dies.
func (w *World) Done() <-chan struct{} { return w.done }

// Err returns why the world died; nil while it lives.
func (w *World) Err() error {
	select {
	case <-w.done:
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.err
	default:
		return nil
	}
}

// Abort kills the world: every wait of its ranks, and every later call, returns Aborted with cause. Only the first cause
// counts.
func (w *World) Abort(cause error) {
	w.once.Do(func() {
		if cause == nil {
			cause = errors.New("aborted without a cause")
		}
		w.mu.Lock()
		w.err = cause
		w.mu.Unlock()
		close(w.done)
		w.dead.Store(true)
		for _, c := range w.local {
			c.conn.Abort(cause)
		}
	})
}

// Run calls fn once for each local rank in its own goroutine and waits for all of them. The first error, panic (with its
// stack) or Goexit (t.FailNow) aborts the world and cancels the ctx that fn got, and the others get Aborted that wraps it.
// Run returns that error, or, if it blames a rank that has an error of its own, what that rank says. When ctx ends, the world
// is aborted with its cause. A goroutine that never returns cannot be ended; World.Done tells others at once that the world is
// dead. One Run goes on at a time: a second one is Invalid.
func (w *World) Run(ctx context.Context, fn func(ctx context.Context, c *Comm) error) error {
	if err := w.Err(); err != nil {
		return AbortedError("run", 0, fmt.Errorf("the world is dead: %w", err))
	}
	if w.busy.Swap(true) {
		return Errorf("run", 0, Invalid, "another Run of this world has not returned; wait for it, or open a world for each")
	}
	defer w.busy.Store(false)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { w.Abort(context.Cause(ctx)) })
	defer stop()

	var first error
	errs := make([]error, len(w.local))
	var once sync.Once
	var wg sync.WaitGroup
	inside := make([]chan struct{}, len(w.local))
	for i := range inside {
		inside[i] = make(chan struct{})
	}
	w.mu.Lock()
	w.inside = inside
	w.mu.Unlock()
	for i, c := range w.local {
		wg.Go(func() {
			defer close(inside[i])
			w.rank(ctx, c, fn, func(err error) {
				errs[i] = err
				once.Do(func() {
					first = err
					w.Abort(err)
					cancel(err)
				})
			})
		})
	}
	wg.Wait()
	if first == nil {
		// ctx may have ended after the last rank looked at it.
		if !stop() {
			return context.Cause(ctx)
		}
	}
	return w.culprit(first, errs)
}

// culprit follows the blame: an error that names another rank as its peer gives way to that rank's own, unless this is only
// the echo of the abort. errs are those of the local ranks, nil where there was none.
func (w *World) culprit(err error, errs []error) error {
	for range errs {
		var e *Error
		if !errors.As(err, &e) || e.Peer == NoPeer {
			return err
		}
		i := slices.IndexFunc(w.local, func(c *Comm) bool { return c.rank == e.Peer })
		if i < 0 || errs[i] == nil || errors.Is(errs[i], Aborted) {
			return err
		}
		err = errs[i]
	}
	return err
}

// rank runs fn for one rank and reports how it ended if that was not a plain nil.
func (w *World) rank(ctx context.Context, c *Comm, fn func(context.Context, *Comm) error, fail func(error)) {
	par.Enter()
	defer par.Leave()
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			cause, ok := p.(error)
			if !ok {
				cause = fmt.Errorf("%v", p)
			}
			fail(&Error{Op: "run", Rank: c.rank, Peer: NoPeer, Code: Internal,
				Err: fmt.Errorf("panic: %w\n%s", cause, debug.Stack())})
			return
		}
		fail(&Error{Op: "run", Rank: c.rank, Peer: NoPeer, Code: Internal,
			Err: errors.New("the goroutine ended without returning (runtime.Goexit, such as t.FailNow)")})
	}()
	err := fn(ctx, c)
	returned = true
	if err == nil {
		return
	}
	if e := (*Error)(nil); !errors.As(err, &e) {
		err = &Error{Op: "run", Rank: c.rank, Peer: NoPeer, Code: Internal, Err: err}
	}
	fail(err)
}

// Close closes every local rank's Comm, at once, since Close is collective.
func (w *World) Close(ctx context.Context) error {
	errs := make([]error, len(w.local))
	var wg sync.WaitGroup
	for i, c := range w.local {
		wg.Go(func() { errs[i] = c.Close(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
